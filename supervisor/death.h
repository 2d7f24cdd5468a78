// What a worker's end means, from everything known about it. Pure: evidence in, verdict out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/reason.h"
#include "bulkhead/v1/types.pb.h"
#include "ipc/worker_abi.h"
#include "supervisor/process_launcher.h"
#include "supervisor/watchdog.h"

namespace bulkhead::supervisor {

// Why the daemon ended a worker. The first cause stays; kNone where it ended by itself.
enum class StopCause : uint8_t {
  kNone,
  // Planned: no death in the breaker's sense.
  kRelease,
  kIdle,
  kEvict,
  kTerminate,
  kShutdown,
  kUnwanted,    // everyone who waited for its load is gone
  kLoadFailed,  // the worker said why and exits by itself
  // Its own fault.
  kProtocol,
  kStall,
  kBuildMismatch,
};

constexpr bool IsPlanned(StopCause cause) { return cause >= StopCause::kRelease && cause <= StopCause::kLoadFailed; }
std::string_view NameOf(StopCause cause);

struct DeathEvidence {
  ProcessExit exit;
  StopCause cause = StopCause::kNone;
  std::string cause_detail;      // the protocol error, the phase and limit of a stall
  bool signalled_by_us = false;  // SIGTERM or SIGKILL was sent
  WorkerPhase phase = WorkerPhase::kSpawning;
  bool oom_kills_rose = false;      // the machine's counter, since shortly before the end
  ipc::OutOfMemoryReport leaf_oom;  // where its own cgroup's limit left no way out; zeros elsewhere
  bool file_changed = false;        // the model file is not what it was at the start
  std::string_view stderr_tail;
};

struct DeathVerdict {
  Reason reason = Reason::kWorkerCrashed;
  bool planned = false;
  std::string detail;          // one sentence for people
  std::string how;             // "killed by signal 9 (Killed)", "exited with code 3"
  ipc::OutOfMemoryReport oom;  // of kWorkerOom, zeros where not known
};

DeathVerdict Classify(const DeathEvidence& evidence);

}  // namespace bulkhead::supervisor
