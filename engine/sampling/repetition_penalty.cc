#include "engine/sampling/repetition_penalty.h"

#include <algorithm>

namespace bulkhead::engine {

RepetitionPenalty::RepetitionPenalty(float penalty, size_t window)
    : penalty_(penalty), window_(penalty == 1 ? 0 : window) {
  recent_.reserve(window_);
  occurrences_.reserve(window_ + 1);
}

void RepetitionPenalty::Accept(std::span<const int32_t> ids) {
  if (window_ == 0) return;
  if (ids.size() > window_) ids = ids.last(window_);
  for (const int32_t id : ids) {
    Add(id);
    if (recent_.size() < window_) {
      recent_.push_back(id);
      continue;
    }
    Remove(recent_[next_]);
    recent_[next_] = id;
    next_ = (next_ + 1) % window_;
  }
}

void RepetitionPenalty::Add(int32_t id) {
  const auto at = std::lower_bound(occurrences_.begin(), occurrences_.end(), id,
                                   [](const Occurrence& o, int32_t wanted) { return o.id < wanted; });
  if (at != occurrences_.end() && at->id == id) {
    ++at->count;
  } else {
    occurrences_.insert(at, {id, 1});
  }
}

void RepetitionPenalty::Remove(int32_t id) {
  const auto at = std::lower_bound(occurrences_.begin(), occurrences_.end(), id,
                                   [](const Occurrence& o, int32_t wanted) { return o.id < wanted; });
  if (--at->count == 0) occurrences_.erase(at);
}

void RepetitionPenalty::Apply(std::span<float> logits, std::vector<Candidate>& changed) const {
  for (const Occurrence& occurrence : occurrences_) {
    if (occurrence.id < 0 || static_cast<size_t>(occurrence.id) >= logits.size()) continue;
    float& logit = logits[static_cast<size_t>(occurrence.id)];
    changed.push_back({logit, occurrence.id});
    logit = logit > 0 ? logit / penalty_ : logit * penalty_;
  }
}

}  // namespace bulkhead::engine
