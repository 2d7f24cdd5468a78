#include "supervisor/breaker.h"

#include <algorithm>

namespace bulkhead::supervisor {

bool Breaker::Death(Duration now, const SupervisionSettings::Breaker& settings) {
  deaths_.push_back(now);
  while (!deaths_.empty() && now - deaths_.front() > settings.window) deaths_.pop_front();
  if (state_ == State::kOpen) return true;
  if (state_ == State::kClosed && deaths_.size() < settings.deaths) return false;
  const uint32_t doublings = std::min(openings_, 30u);
  const Duration backoff = std::min(settings.backoff * (int64_t{1} << doublings), settings.max_backoff);
  ++openings_;
  state_ = State::kOpen;
  until_ = now + std::max(backoff, settings.backoff);
  return true;
}

void Breaker::Healthy() {
  if (state_ != State::kTrial) return;
  Reset();
}

void Breaker::LetTrialThrough() {
  if (state_ == State::kOpen) state_ = State::kTrial;
}

bool Breaker::Reset() {
  const bool was_blocking = state_ != State::kClosed;
  state_ = State::kClosed;
  deaths_.clear();
  openings_ = 0;
  return was_blocking;
}

}  // namespace bulkhead::supervisor
