#include "supervisor/watchdog.h"

#include <array>

namespace bulkhead::supervisor {

std::string_view NameOf(WorkerPhase phase) {
  static constexpr std::array<std::string_view, 7> kNames = {"spawning", "hello",  "load",    "idle",
                                                             "prefill",  "decode", "teardown"};
  return kNames[static_cast<size_t>(phase)];
}

void Watchdog::Progress(uint64_t counter, Duration now) {
  if (counter_ == counter) return;
  counter_ = counter;
  last_move_ = now;
}

void Watchdog::LoadProgress(uint64_t digest, Duration now) {
  if (load_digest_ == digest) return;
  load_digest_ = digest;
  last_move_ = now;
}

void Watchdog::Enter(WorkerPhase phase, Duration now) {
  if (phase == phase_) return;
  // From prefill to decode and back the counter goes on; what began anew gets the whole limit.
  const bool both_busy = (phase == WorkerPhase::kPrefill || phase == WorkerPhase::kDecode) &&
                         (phase_ == WorkerPhase::kPrefill || phase_ == WorkerPhase::kDecode);
  phase_ = phase;
  if (!both_busy) last_move_ = now;
}

std::optional<Duration> Watchdog::Deadline(const SupervisionSettings::Watchdog& limits) const {
  switch (phase_) {
    case WorkerPhase::kSpawning:
    case WorkerPhase::kHello:
      return last_move_ + limits.hello;
    case WorkerPhase::kLoad:
      return last_move_ + limits.load;
    case WorkerPhase::kPrefill:
      return last_move_ + limits.prefill;
    case WorkerPhase::kDecode:
      return last_move_ + limits.token;
    case WorkerPhase::kIdle:
    case WorkerPhase::kTeardown:
      break;
  }
  return std::nullopt;
}

}  // namespace bulkhead::supervisor
