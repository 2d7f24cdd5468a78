#include "admission/verdict.h"

namespace bulkhead::admission {

std::string_view NameOf(Verdict verdict) {
  return verdict == Verdict::kAllowed ? "ALLOWED" : NameOf(ReasonFor(verdict));
}

Reason ReasonFor(Verdict verdict) {
  switch (verdict) {
    case Verdict::kAllowed:
      return Reason::kUnspecified;
    case Verdict::kDisabledByPolicy:
      return Reason::kDisabledByPolicy;
    case Verdict::kExceedsCeiling:
      return Reason::kExceedsCeiling;
    case Verdict::kQueueFull:
      return Reason::kQueueFull;
    case Verdict::kLiveMemoryUnknown:
      return Reason::kLiveMemoryUnknown;
    case Verdict::kBreakerOpen:
      return Reason::kBreakerOpen;
    case Verdict::kModelMaintenance:
      return Reason::kModelMaintenance;
    case Verdict::kContextTooLarge:
      return Reason::kContextTooLarge;
    case Verdict::kWaitingForMemory:
      return Reason::kWaitingForMemory;
    case Verdict::kInsufficientLiveMemory:
      return Reason::kInsufficientLiveMemory;
    case Verdict::kPendingTeardown:
      return Reason::kPendingTeardown;
  }
  return Reason::kInternal;
}

bool Waits(Verdict verdict) {
  return verdict == Verdict::kWaitingForMemory || verdict == Verdict::kInsufficientLiveMemory ||
         verdict == Verdict::kPendingTeardown;
}

absl::Status ToStatus(const Refusal& refusal) { return Error(refusal.reason, refusal.message); }

}  // namespace bulkhead::admission
