// Time, injected. Production code takes a Clock&; tests pass a FakeClock and move it by hand, so nothing sleeps to be
// right. Nanoseconds since an arbitrary start, except Wall (since the Unix epoch, UTC).
#pragma once

#include <chrono>
#include <cstdint>

namespace bulkhead {

using Duration = std::chrono::nanoseconds;

class Clock {
 public:
  virtual ~Clock() = default;
  // Does not advance while the machine is suspended: for stall limits and deadlines of work.
  [[nodiscard]] virtual Duration Monotonic() const = 0;
  // Advances while the machine is suspended: for idleness.
  [[nodiscard]] virtual Duration Boottime() const = 0;
  // For records shown to people only.
  [[nodiscard]] virtual Duration Wall() const = 0;
};

// The kernel's clocks. Thread-safe, lives for ever.
const Clock& SystemClock();

class FakeClock final : public Clock {
 public:
  [[nodiscard]] Duration Monotonic() const override { return monotonic_; }
  [[nodiscard]] Duration Boottime() const override { return boottime_; }
  [[nodiscard]] Duration Wall() const override { return wall_; }
  void Advance(Duration by) {
    monotonic_ += by;
    boottime_ += by;
    wall_ += by;
  }
  // Time that passed while suspended: everything but Monotonic moves.
  void Suspend(Duration by) {
    boottime_ += by;
    wall_ += by;
  }

 private:
  Duration monotonic_ = std::chrono::seconds(1000);
  Duration boottime_ = std::chrono::seconds(2000);
  Duration wall_ = std::chrono::seconds(1'700'000'000);
};

}  // namespace bulkhead
