// Tells a slow worker from a stuck one: by a counter that moves whenever its engine does anything, never by how long a
// request takes or whether somebody answers pings. Pure; monotonic time, so suspending the machine kills nobody.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "supervisor/settings.h"

namespace bulkhead::supervisor {

enum class WorkerPhase : uint8_t { kSpawning, kHello, kLoad, kIdle, kPrefill, kDecode, kTeardown };
std::string_view NameOf(WorkerPhase phase);  // spawning, hello, load, idle, prefill, decode, teardown

class Watchdog {
 public:
  // Something moved, or a phase began in which the counter starts anew.
  void Moved(Duration now) { last_move_ = now; }
  // A heartbeat's counter, and a digest of a load's progress: each counts as movement only where it differs from the
  // last of its kind, since both are also sent while nothing moves.
  void Progress(uint64_t counter, Duration now);
  void LoadProgress(uint64_t digest, Duration now);
  void Enter(WorkerPhase phase, Duration now);

  [[nodiscard]] WorkerPhase phase() const { return phase_; }
  [[nodiscard]] Duration last_move() const { return last_move_; }
  // When it barks if nothing moves; nullopt in phases without a limit.
  [[nodiscard]] std::optional<Duration> Deadline(const SupervisionSettings::Watchdog& limits) const;

 private:
  WorkerPhase phase_ = WorkerPhase::kSpawning;
  Duration last_move_{};
  std::optional<uint64_t> counter_;
  std::optional<uint64_t> load_digest_;
};

}  // namespace bulkhead::supervisor
