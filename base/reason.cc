#include "base/reason.h"

#include <algorithm>
#include <array>

namespace bulkhead {
namespace {

using enum ExitCode;
using Code = absl::StatusCode;

constexpr std::array kTable = {
    ReasonInfo{Reason::kUnspecified, "UNSPECIFIED", Code::kUnknown, kOther, false},
    ReasonInfo{Reason::kInternal, "INTERNAL", Code::kInternal, kOther, false},
    ReasonInfo{Reason::kInvalidRequest, "INVALID_REQUEST", Code::kInvalidArgument, kUsage, false},
    ReasonInfo{Reason::kUnimplemented, "UNIMPLEMENTED", Code::kUnimplemented, kOther, false},
    ReasonInfo{Reason::kProtocolError, "PROTOCOL_ERROR", Code::kInvalidArgument, kOther, false},
    ReasonInfo{Reason::kFrameTooLarge, "FRAME_TOO_LARGE", Code::kResourceExhausted, kUsage, false},
    ReasonInfo{Reason::kDisabledByPolicy, "DISABLED_BY_POLICY", Code::kFailedPrecondition, kRefused, false},
    ReasonInfo{Reason::kExceedsCeiling, "EXCEEDS_CEILING", Code::kResourceExhausted, kRefused, false},
    ReasonInfo{Reason::kQueueFull, "QUEUE_FULL", Code::kResourceExhausted, kRefused, true},
    ReasonInfo{Reason::kLiveMemoryUnknown, "LIVE_MEMORY_UNKNOWN", Code::kUnavailable, kRefused, true},
    ReasonInfo{Reason::kBreakerOpen, "BREAKER_OPEN", Code::kUnavailable, kRefused, true},
    ReasonInfo{Reason::kModelMaintenance, "MODEL_MAINTENANCE", Code::kUnavailable, kRefused, true},
    ReasonInfo{Reason::kWaitingForMemory, "WAITING_FOR_MEMORY", Code::kResourceExhausted, kRefused, true},
    ReasonInfo{Reason::kInsufficientLiveMemory, "INSUFFICIENT_LIVE_MEMORY", Code::kResourceExhausted, kRefused, true},
    ReasonInfo{Reason::kPendingTeardown, "PENDING_TEARDOWN", Code::kUnavailable, kRefused, true},
    ReasonInfo{Reason::kContextTooLarge, "CONTEXT_TOO_LARGE", Code::kInvalidArgument, kRefused, false},
    ReasonInfo{Reason::kModelNotFound, "MODEL_NOT_FOUND", Code::kNotFound, kNotFound, false},
    ReasonInfo{Reason::kInferenceNotFound, "INFERENCE_NOT_FOUND", Code::kNotFound, kNotFound, false},
    ReasonInfo{Reason::kModelInvalid, "MODEL_INVALID", Code::kInvalidArgument, kOther, false},
    ReasonInfo{Reason::kModelUnsupported, "MODEL_UNSUPPORTED", Code::kUnimplemented, kOther, false},
    ReasonInfo{Reason::kTemplateUnsupported, "TEMPLATE_UNSUPPORTED", Code::kUnimplemented, kUsage, false},
    ReasonInfo{Reason::kWorkerCrashed, "WORKER_CRASHED", Code::kAborted, kWorkerDied, true},
    ReasonInfo{Reason::kWorkerOom, "WORKER_OOM", Code::kAborted, kWorkerDied, true},
    ReasonInfo{Reason::kWorkerStalled, "WORKER_STALLED", Code::kAborted, kWorkerDied, true},
    ReasonInfo{Reason::kWorkerProtocolError, "WORKER_PROTOCOL_ERROR", Code::kAborted, kWorkerDied, true},
    ReasonInfo{Reason::kWorkerSandboxViolation, "WORKER_SANDBOX_VIOLATION", Code::kAborted, kWorkerDied, false},
    ReasonInfo{Reason::kModelFileChanged, "MODEL_FILE_CHANGED", Code::kAborted, kWorkerDied, true},
    ReasonInfo{Reason::kCpuUnsupported, "CPU_UNSUPPORTED", Code::kFailedPrecondition, kWorkerDied, false},
    ReasonInfo{Reason::kSpawnFailed, "SPAWN_FAILED", Code::kUnavailable, kWorkerDied, true},
    ReasonInfo{Reason::kWorkerBuildMismatch, "WORKER_BUILD_MISMATCH", Code::kFailedPrecondition, kWorkerDied, false},
    ReasonInfo{Reason::kWorkerTerminated, "WORKER_TERMINATED", Code::kAborted, kEndedByOther, true},
    ReasonInfo{Reason::kCancelled, "CANCELLED", Code::kCancelled, kEndedByOther, false},
    ReasonInfo{Reason::kModelReleased, "MODEL_RELEASED", Code::kAborted, kEndedByOther, true},
    ReasonInfo{Reason::kShuttingDown, "SHUTTING_DOWN", Code::kUnavailable, kEndedByOther, true},
    ReasonInfo{Reason::kClientStalled, "CLIENT_STALLED", Code::kAborted, kEndedByOther, true},
    ReasonInfo{Reason::kPermissionDenied, "PERMISSION_DENIED", Code::kPermissionDenied, kDenied, false},
    ReasonInfo{Reason::kLimitExceeded, "LIMIT_EXCEEDED", Code::kResourceExhausted, kRefused, true},
    ReasonInfo{Reason::kDeadlineExceeded, "DEADLINE_EXCEEDED", Code::kDeadlineExceeded, kDeadline, true},
    ReasonInfo{Reason::kQueueDeadlineExceeded, "QUEUE_DEADLINE_EXCEEDED", Code::kDeadlineExceeded, kDeadline, true},
    ReasonInfo{Reason::kDaemonUnreachable, "DAEMON_UNREACHABLE", Code::kUnavailable, kUnreachable, true},
    ReasonInfo{Reason::kConnectionLost, "CONNECTION_LOST", Code::kUnavailable, kUnreachable, true},
};

}  // namespace

std::span<const ReasonInfo> AllReasons() { return kTable; }

const ReasonInfo& InfoOf(Reason reason) {
  const auto* row = std::find_if(kTable.begin(), kTable.end(), [&](const ReasonInfo& r) { return r.reason == reason; });
  return row == kTable.end() ? kTable[1] : *row;
}

std::string_view NameOf(Reason reason) { return InfoOf(reason).name; }

std::optional<Reason> ReasonFromName(std::string_view name) {
  for (const ReasonInfo& row : kTable) {
    if (row.name == name) return row.reason;
  }
  return std::nullopt;
}

}  // namespace bulkhead
