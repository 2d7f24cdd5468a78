#include <fmt/format.h>

#include "base/reason.h"
#include "bulkhead/v1/client.pb.h"
#include "client/cli/session.h"

namespace bulkhead::cli {

std::string HintFor(const v1::ErrorEvent& error, std::string_view model) {
  const std::string name(model.empty() ? "MODEL" : model);
  switch (static_cast<Reason>(error.reason())) {
    case Reason::kDisabledByPolicy:
      return "bulkhead policy";
    case Reason::kExceedsCeiling:
    case Reason::kContextTooLarge:
      return fmt::format("bulkhead preflight {}", name);
    case Reason::kWaitingForMemory:
    case Reason::kInsufficientLiveMemory:
      return "bulkhead ps --memory, then bulkhead release --idle=0s";
    case Reason::kPendingTeardown:
    case Reason::kQueueFull:
    case Reason::kLimitExceeded:
    case Reason::kQueueDeadlineExceeded:
    case Reason::kModelMaintenance:
      return "bulkhead ps --requests";
    case Reason::kLiveMemoryUnknown:
    case Reason::kSpawnFailed:
    case Reason::kCpuUnsupported:
    case Reason::kWorkerBuildMismatch:
      return "bulkhead doctor";
    case Reason::kBreakerOpen:
      return fmt::format("bulkhead deaths, then bulkhead unblock {}", name);
    case Reason::kModelNotFound:
      return "bulkhead models";
    case Reason::kInferenceNotFound:
      return "bulkhead ps --requests";
    case Reason::kModelUnsupported:
      return fmt::format("bulkhead show {}", name);
    case Reason::kTemplateUnsupported:
      return fmt::format("bulkhead run {} --raw PROMPT", name);
    case Reason::kWorkerCrashed:
    case Reason::kWorkerOom:
    case Reason::kWorkerStalled:
    case Reason::kWorkerProtocolError:
    case Reason::kWorkerSandboxViolation:
    case Reason::kModelFileChanged:
      return "bulkhead deaths";
    case Reason::kDaemonUnreachable:
      return "systemctl status bulkhead, or start one: bulkheadd --socket PATH --models DIR --state DIR";
    case Reason::kConnectionLost:
      return "bulkhead doctor";
    case Reason::kPermissionDenied:
      return "as a member of the daemon's group, or as root; id shows your groups";
    default:
      return "";
  }
}

}  // namespace bulkhead::cli
