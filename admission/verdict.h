// What admission says of a request, in one word and in one sentence. Names equal those of base/reason.h, so that the
// same word stands in a log, an event, an error and `bulkhead preflight`.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/reason.h"
#include "base/status.h"

namespace bulkhead::admission {

enum class Verdict : uint8_t {
  kAllowed,
  // Refused at once.
  kDisabledByPolicy,
  kExceedsCeiling,
  kQueueFull,
  kLiveMemoryUnknown,
  kBreakerOpen,
  kModelMaintenance,
  kContextTooLarge,
  // Waits up to the request's deadline.
  kWaitingForMemory,
  kInsufficientLiveMemory,
  kPendingTeardown,
};

inline constexpr size_t kVerdictCount = static_cast<size_t>(Verdict::kPendingTeardown) + 1;

// "ALLOWED", else the name of ReasonFor(verdict).
std::string_view NameOf(Verdict verdict);

// kUnspecified for kAllowed.
Reason ReasonFor(Verdict verdict);

// True for the verdicts under which a request waits.
bool Waits(Verdict verdict);

// Why a request was not admitted. Bytes unless the reason is kContextTooLarge (tokens) or kQueueFull (requests).
struct Refusal {
  Reason reason = Reason::kUnspecified;
  std::string message{};  // the thing, what was asked, what is available, the limit
  std::string hint{};     // the next command to try; may be empty
  uint64_t asked = 0;
  uint64_t available = 0;  // kContextTooLarge: granted now (0 = no worker is resident)
  uint64_t limit = 0;      // kContextTooLarge: the most that could be granted
  Duration retry_after{};  // zero: no idea
};

// The refusal as a Status carrying its reason; hint and numbers stay behind.
absl::Status ToStatus(const Refusal& refusal);

}  // namespace bulkhead::admission
