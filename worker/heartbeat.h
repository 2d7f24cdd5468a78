// When the worker says that it lives, and what: the engine's own progress counter and phase, so that a main thread that
// answers proves nothing about an engine that hangs. Main thread only.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace bulkhead::engine {
class ContinuousBatchEngine;
}

namespace bulkhead::worker {

class Outbox;

class Heartbeats {
 public:
  // Both send one if it is due and return when the next is.
  Duration Load(Duration now, uint64_t progress, Outbox* outbox);
  Duration Serve(Duration now, uint64_t progress_of_load, const engine::ContinuousBatchEngine& engine, bool busy,
                 Outbox* outbox);

 private:
  Duration last_ = Duration::zero();
  bool was_busy_ = true;
};

}  // namespace bulkhead::worker
