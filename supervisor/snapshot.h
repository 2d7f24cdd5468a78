// What the offload tells about itself: copies of its state at one instant, answered from memory, never from behind
// anything that waits. Bytes and milliseconds as named.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "admission/estimate.h"
#include "base/clock.h"
#include "bulkhead/v1/types.pb.h"

namespace bulkhead::supervisor {

// One allocation from RESERVED to FREED.
struct ResidentModel {
  std::string model;
  std::string allocation_id;
  std::string_view state;  // a name of lifecycle.h's table, static
  pid_t pid = 0;           // 0 while no process exists
  uint64_t charge_bytes = 0;
  uint64_t estimate_bytes = 0;
  uint64_t measured_bytes = 0;  // the most private memory ever seen of it
  uint64_t shared_bytes = 0;    // weights, counted once per file
  uint64_t private_bytes = 0;   // as of the last reading, a second ago at most
  uint64_t file_bytes = 0;      // pages of files that it maps and that are in memory
  uint64_t share_bytes = 0;     // of those, each page divided by who maps it; after MeasureMaps, else 0
  admission::FileIdentity file;
  uint32_t in_flight = 0;
  uint32_t waiting = 0;
  bool pinned = false;
  uint32_t context = 0;
  uint32_t sequences = 0;
  uint32_t threads = 0;
  int64_t resident_ms = 0;
  int64_t idle_ms = -1;         // -1 while not idle
  uint64_t deadline_in_ms = 0;  // of a teardown under way
  bool passed = false;
  uid_t uid = 0;  // of a passed descriptor
  v1::EngineSnapshot engine;
  int64_t heartbeat_ms = -1;  // since that came; -1 before the first
};

// Where computing may happen, in words.
struct ResourceReport {
  struct Worker {
    std::string allocation_id;
    std::string grant;               // threads, CPUs and why
    std::vector<std::string> notes;  // kernel tier, demotions, huge pages, sandbox; empty before READY
  };
  std::string machine;
  std::vector<Worker> workers;
};

struct RequestInfo {
  std::string inference_id;
  std::string model;
  std::string allocation_id;  // empty while none is assigned
  std::string_view state;     // a name of lifecycle.h's table, static
  uid_t uid = 0;
  int64_t age_ms = 0;
  uint32_t prompt_tokens = 0;
  uint32_t produced = 0;
  v1::Priority priority = v1::PRIORITY_NORMAL;
};

struct BudgetSnapshot {
  std::string profile;
  uint64_t ceiling_bytes = 0;  // 0 = none
  uint64_t charged_bytes = 0;
  uint64_t promised_bytes = 0;
  uint64_t live_headroom_bytes = 0;
  uint64_t policy_generation = 0;
  uint32_t waiting = 0;
  uint64_t oldest_waiting_ms = 0;
};

struct PreflightLine {
  std::string what;
  int64_t bytes = 0;
  std::string note;
};

struct PreflightReport {
  std::string verdict;
  std::vector<PreflightLine> lines;
  uint32_t context = 0;
  uint32_t sequences = 0;
  uint64_t estimate_bytes = 0;
  std::vector<std::string> would_release;
};

// A line in the life of a worker or request, as `events` prints it.
struct LifecycleEvent {
  Duration at_wall{0};
  std::string subject;    // allocation or inference id
  std::string_view what;  // a state or event name of the tables
  std::string model;
  std::string detail;
  std::optional<uid_t> uid = {};  // of a request: whose it is
};

}  // namespace bulkhead::supervisor
