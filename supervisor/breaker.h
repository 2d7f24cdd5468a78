// Keeps a model that keeps killing its workers from being started over and over: N deaths in a window open it; after a
// backoff that doubles each time one worker is let through on trial; healthy service closes it, another death opens it
// again. Planned kills are not told to it. Pure; monotonic time.
#pragma once

#include <cstdint>
#include <deque>

#include "base/clock.h"
#include "supervisor/settings.h"

namespace bulkhead::supervisor {

class Breaker {
 public:
  enum class State : uint8_t { kClosed, kOpen, kTrial };

  // Returns true if the breaker is open after this death.
  bool Death(Duration now, const SupervisionSettings::Breaker& settings);
  // A worker served without dying for the healthy time, or until it was stopped on purpose after as much.
  void Healthy();
  // The backoff has passed: one worker may try. Nothing happens unless it is open.
  void LetTrialThrough();
  // By an administrator. True if it was not closed.
  bool Reset();

  [[nodiscard]] State state() const { return state_; }
  // When the backoff ends; meaningful while open.
  [[nodiscard]] Duration until() const { return until_; }
  [[nodiscard]] uint32_t deaths() const { return static_cast<uint32_t>(deaths_.size()); }

 private:
  State state_ = State::kClosed;
  std::deque<Duration> deaths_;
  Duration until_{};
  uint32_t openings_ = 0;  // since it was last closed
};

}  // namespace bulkhead::supervisor
