// Why a request, load, release or command did not go as asked: the one table from which status codes, exit codes of
// `bulkhead` and "may be tried again" follow. The numbers equal those of proto/bulkhead/v1/types.proto's Reason; a
// test walks both. Never renumber: clients of other builds read these.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace bulkhead {

enum class Reason : uint16_t {
  kUnspecified = 0,
  kInternal = 1,
  kInvalidRequest = 2,
  kUnimplemented = 3,
  kProtocolError = 4,
  kFrameTooLarge = 5,
  // Admission, refused at once.
  kDisabledByPolicy = 10,
  kExceedsCeiling = 11,
  kQueueFull = 12,
  kLiveMemoryUnknown = 13,
  kBreakerOpen = 14,
  kModelMaintenance = 15,
  // Admission, reported when the wait's deadline passed.
  kWaitingForMemory = 16,
  kInsufficientLiveMemory = 17,
  kPendingTeardown = 18,
  kContextTooLarge = 19,
  // Things that do not exist or cannot be read.
  kModelNotFound = 30,
  kInferenceNotFound = 31,
  kModelInvalid = 32,
  kModelUnsupported = 33,
  kTemplateUnsupported = 34,
  // The worker died.
  kWorkerCrashed = 50,
  kWorkerOom = 51,
  kWorkerStalled = 52,
  kWorkerProtocolError = 53,
  kWorkerSandboxViolation = 54,
  kModelFileChanged = 55,
  kCpuUnsupported = 56,
  kSpawnFailed = 57,
  kWorkerBuildMismatch = 58,
  // Ended by somebody else.
  kWorkerTerminated = 70,
  kCancelled = 71,
  kModelReleased = 72,
  kShuttingDown = 73,
  kClientStalled = 74,
  // Rights and limits.
  kPermissionDenied = 80,
  kLimitExceeded = 81,
  // Deadlines.
  kDeadlineExceeded = 90,
  kQueueDeadlineExceeded = 91,
  // Seen by the client alone.
  kDaemonUnreachable = 100,
  kConnectionLost = 101,
};

// Exit codes of the `bulkhead` command (documented in its man page).
enum class ExitCode : uint8_t {
  kOk = 0,
  kOther = 1,
  kUsage = 2,
  kRefused = 3,
  kNotFound = 4,
  kWorkerDied = 5,
  kEndedByOther = 6,
  kUnreachable = 7,
  kDenied = 8,
  kDeadline = 9,
};

struct ReasonInfo {
  Reason reason;
  std::string_view name;  // UPPER_SNAKE, as in the protocol, logs and JSON
  absl::StatusCode code;
  ExitCode exit_code;
  bool retryable;  // the same request may succeed later without a change by the caller
};

// Every reason, ascending by number.
std::span<const ReasonInfo> AllReasons();

// The row of `reason`; the row of kInternal for a number this build does not know.
const ReasonInfo& InfoOf(Reason reason);

std::string_view NameOf(Reason reason);
std::optional<Reason> ReasonFromName(std::string_view name);

}  // namespace bulkhead
