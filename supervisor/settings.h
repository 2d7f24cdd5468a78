// How strictly workers are supervised and how much may wait. The daemon fills these from its configuration; a change
// at run time counts from the next decision on.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/clock.h"

namespace bulkhead::supervisor {

struct SupervisionSettings {
  struct Queue {
    uint32_t per_model = 64;  // requests waiting or running, one bound per model and one over all
    uint32_t total = 256;
    Duration wait = std::chrono::minutes(2);     // of requests that name no queue deadline
    Duration ageing = std::chrono::seconds(15);  // raises who waits by one priority; 0 = never
  } queue;

  struct Deadlines {
    Duration drain = std::chrono::seconds(10);   // of a busy model that is released
    Duration cancel = std::chrono::seconds(2);   // from cancel to SIGTERM; from a cancel without progress to the kill
    Duration term = std::chrono::seconds(1);     // from SIGTERM to SIGKILL
    Duration confirm = std::chrono::seconds(5);  // from SIGKILL until "unconfirmed" is answered, and between retries
    Duration client_stall = std::chrono::seconds(60);  // of a paused sequence
  } deadlines;

  // How long the progress counter may stand still.
  struct Watchdog {
    Duration hello = std::chrono::seconds(10);
    Duration load = std::chrono::seconds(120);
    Duration prefill = std::chrono::seconds(60);
    Duration token = std::chrono::seconds(30);
    Duration inspect = std::chrono::seconds(20);  // whole duration of a header inspection
  } watchdog;

  struct Breaker {
    uint32_t deaths = 3;
    Duration window = std::chrono::minutes(5);
    Duration backoff = std::chrono::seconds(10);
    Duration max_backoff = std::chrono::minutes(10);
    Duration healthy = std::chrono::seconds(30);  // service after which a half-open trial counts as a success
  } breaker;

  struct Model {
    uint32_t context = 8192;
    uint32_t sequences = 4;
    std::string kv_type = "f16";
    std::string kernel_tier;  // empty = best
    uint32_t threads = 0;     // 0 = all that affinity and quota allow, divided among busy workers
  } model;

  Duration idle_release = std::chrono::minutes(10);  // 0 = never
  bool fence_off = false;                            // tests only
  std::string test_hook;                             // tests only
};

// What models may take of this machine's memory.
struct ResourcePolicy {
  uint64_t generation = 0;
  std::string profile = "everyday";  // or local_focused, custom
  uint64_t custom_bytes = 0;         // of profile custom; 0 = none
};

}  // namespace bulkhead::supervisor
