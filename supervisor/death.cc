#include "supervisor/death.h"

#include <fmt/format.h>

#include <array>
#include <csignal>
#include <cstring>

namespace bulkhead::supervisor {
namespace {

std::string Describe(const ProcessExit& exit) {
  if (exit.signal != 0) return fmt::format("killed by signal {} ({})", exit.signal, strsignal(exit.signal));
  return fmt::format("exited with code {}", exit.code);
}

Reason ReasonOfPlanned(StopCause cause) {
  switch (cause) {
    case StopCause::kShutdown:
      return Reason::kShuttingDown;
    case StopCause::kRelease:
    case StopCause::kIdle:
    case StopCause::kEvict:
      return Reason::kModelReleased;
    default:
      return Reason::kWorkerTerminated;
  }
}

struct Finding {
  Reason reason;
  const char* why;
};

Finding BySignal(const DeathEvidence& evidence) {
  switch (evidence.exit.signal) {
    case SIGSYS:
      return {Reason::kWorkerSandboxViolation, "it made a system call its sandbox forbids"};
    case SIGILL:
      return {Reason::kCpuUnsupported, "this CPU lacks an instruction it used"};
    case SIGBUS:
      if (evidence.file_changed) return {Reason::kModelFileChanged, "the model file was changed or cut short under it"};
      return {Reason::kWorkerCrashed, "a page of the model file could not be read"};
    case SIGKILL:
      if (evidence.oom_kills_rose && evidence.leaf_oom.limit_bytes > 0) {
        return {Reason::kWorkerOom, "it reached the memory limit of its cgroup"};
      }
      if (evidence.oom_kills_rose) return {Reason::kWorkerOom, "the kernel ran out of memory and chose it"};
      return {Reason::kWorkerCrashed, "somebody outside killed it"};
    default:
      return {Reason::kWorkerCrashed, "a native crash"};
  }
}

Finding ByExitCode(const DeathEvidence& evidence) {
  switch (evidence.exit.code) {
    case ipc::kWorkerExitOutOfMemory:
      return {Reason::kWorkerOom, "it reached its memory limit"};
    case ipc::kWorkerExitProtocol:
      return {Reason::kWorkerProtocolError, "it did not understand the daemon"};
    case ipc::kWorkerExitFence:
      return {Reason::kSpawnFailed, "its sandbox could not be raised"};
    case ipc::kWorkerExitOk:
      return {Reason::kWorkerCrashed, "it ended without being told to"};
    default:
      return {Reason::kWorkerCrashed, "it gave up"};
  }
}

// Whether the end is the one the daemon brought about. A worker that crashed before our signal arrived crashed.
bool EndedByUs(const DeathEvidence& evidence) {
  if (evidence.cause == StopCause::kNone) return false;
  if (evidence.exit.signal == SIGKILL || evidence.exit.signal == SIGTERM) return evidence.signalled_by_us;
  // A worker that was told to go, or that said LoadFailed, exits by itself. One that broke the protocol and then exits
  // broke the protocol.
  if (evidence.exit.signal != 0) return false;
  return evidence.exit.code != ipc::kWorkerExitOutOfMemory;
}

}  // namespace

std::string_view NameOf(StopCause cause) {
  static constexpr std::array<std::string_view, 11> kNames = {
      "none",     "release",     "idle",           "make-room", "terminate",     "shutdown",
      "unwanted", "load-failed", "protocol-error", "stall",     "build-mismatch"};
  return kNames[static_cast<size_t>(cause)];
}

DeathVerdict Classify(const DeathEvidence& evidence) {
  DeathVerdict verdict;
  verdict.how = Describe(evidence.exit);
  if (EndedByUs(evidence)) {
    verdict.planned = IsPlanned(evidence.cause);
    if (verdict.planned) {
      verdict.reason = ReasonOfPlanned(evidence.cause);
    } else if (evidence.cause == StopCause::kStall) {
      verdict.reason = Reason::kWorkerStalled;
    } else if (evidence.cause == StopCause::kBuildMismatch) {
      verdict.reason = Reason::kWorkerBuildMismatch;
    } else {
      verdict.reason = Reason::kWorkerProtocolError;
    }
    verdict.detail = fmt::format("worker stopped in {} ({}): {}", NameOf(evidence.phase), NameOf(evidence.cause),
                                 evidence.cause_detail.empty() ? verdict.how : evidence.cause_detail);
    return verdict;
  }
  const Finding finding = evidence.exit.signal != 0 ? BySignal(evidence) : ByExitCode(evidence);
  verdict.reason = finding.reason;
  verdict.detail = fmt::format("worker {} in {}: {}", verdict.how, NameOf(evidence.phase), finding.why);
  if (verdict.reason == Reason::kWorkerOom) {
    verdict.oom = evidence.exit.signal == SIGKILL
                      ? evidence.leaf_oom
                      : ipc::ParseOutOfMemory(evidence.stderr_tail).value_or(ipc::OutOfMemoryReport{});
    if (verdict.oom.limit_bytes > 0) {
      verdict.detail += fmt::format(" (wanted {}, in use {}, limit {} bytes)", verdict.oom.wanted_bytes,
                                    verdict.oom.in_use_bytes, verdict.oom.limit_bytes);
    }
  }
  return verdict;
}

}  // namespace bulkhead::supervisor
