// ContinuousBatchEngine::Loop: who computes which prompt, and who gives up pages for whom.
#include <algorithm>
#include <tuple>

#include "engine/runtime/engine_loop.h"

namespace bulkhead::engine {
namespace {

int Importance(Priority priority) {
  if (priority == Priority::kInteractive) return 2;
  return priority == Priority::kNormal ? 1 : 0;
}

uint32_t CommonTokens(const Sequence& a, const Sequence& b) {
  const auto most = static_cast<ptrdiff_t>(std::min(a.tokens().size(), b.tokens().size()));
  const auto end = a.tokens().begin() + most;
  return static_cast<uint32_t>(std::mismatch(a.tokens().begin(), end, b.tokens().begin()).first - a.tokens().begin());
}

uint32_t WholePages(uint32_t tokens) { return tokens / kPagePositions * kPagePositions; }

// Rows until the next state worth keeping.
uint32_t RowsToCheckpoint(const Sequence& sequence) {
  const auto next = sequence.checkpoints.upper_bound(sequence.computed());
  return next == sequence.checkpoints.end() ? UINT32_MAX : *next - sequence.computed();
}

}  // namespace

void ContinuousBatchEngine::Loop::AddPrefill(std::vector<Share>& plan, uint32_t budget) {
  for (Sequence* sequence : RunnableByLastServed(true)) {
    if (budget == 0) break;
    if (options_.prefix_cache) {
      AdoptMore(*sequence);
      if (Follows(*sequence)) continue;
    }
    const uint32_t rows = std::min({budget, sequence->pending(), RowsToCheckpoint(*sequence)});
    plan.push_back({sequence, rows});
    budget -= rows;
  }
}

void ContinuousBatchEngine::Loop::AdoptMore(Sequence& sequence) {
  sequence.Adopt(runtime_->Adopt(*sequence.slot, sequence.tokens(), sequence.computed()));
  if (runtime_->states().used()) WishForCheckpoints(sequence);
}

// The last whole page of what is known, for whoever repeats it, and where it parts from what was computed before: that
// is the end of something common.
void ContinuousBatchEngine::Loop::WishForCheckpoints(Sequence& sequence) const {
  if (sequence.computed() != 0 && !sequence.checkpoints.empty()) return;
  const auto most = static_cast<uint32_t>(sequence.tokens().size()) - 1;
  sequence.checkpoints.insert(WholePages(most));
  sequence.checkpoints.insert(runtime_->Cached(*sequence.slot, sequence.tokens().first(most)));
}

// The one that is further (of equals, the one of the lower id) leads; this order has no circles, and whoever stands
// first in it computes.
bool ContinuousBatchEngine::Loop::Follows(const Sequence& sequence) {
  const auto most = static_cast<uint32_t>(sequence.tokens().size()) - 1;
  const uint32_t next = sequence.computed() + kPagePositions;
  const bool states = runtime_->states().used();
  if (sequence.computed() % kPagePositions != 0 || next > most) return false;
  if (states && runtime_->states().snapshots() == 0) return false;
  for (const auto& [id, other] : sequences_) {
    if (other.get() == &sequence || !other->slot || other->paused || !other->prefilling()) continue;
    const bool leads = other->computed() > sequence.computed() ||
                       (other->computed() == sequence.computed() && other->id() < sequence.id());
    if (!leads || other->salt() != sequence.salt()) continue;
    const uint32_t common = WholePages(std::min(CommonTokens(*other, sequence), most));
    if (common < next || other->computed() >= (states ? common : next)) continue;
    if (states) other->checkpoints.insert(common);
    return true;
  }
  return false;
}

void ContinuousBatchEngine::Loop::SecurePages(std::vector<Share>& plan) {
  for (size_t i = 0; i < plan.size();) {
    const Sequence& sequence = *plan[i].sequence;
    if (runtime_->Reserve(*sequence.slot, sequence.computed() + plan[i].rows)) {
      ++i;
      continue;
    }
    Sequence& loser = LeastImportant();
    const auto share = std::find_if(plan.begin(), plan.end(), [&](const Share& s) { return s.sequence == &loser; });
    if (share != plan.end()) {
      if (share - plan.begin() < static_cast<ptrdiff_t>(i)) --i;
      plan.erase(share);
    }
    Preempt(loser);
  }
}

// Among those that were not promised everything. Only one of them can be short of pages, so there is one.
Sequence& ContinuousBatchEngine::Loop::LeastImportant() {
  Sequence* least = nullptr;
  const auto rank = [](const Sequence& s) {
    return std::make_tuple(s.paused ? 0 : 1, Importance(s.priority()), -static_cast<int64_t>(s.arrival));
  };
  for (const auto& [id, sequence] : sequences_) {
    if (!sequence->slot || sequence->guaranteed) continue;
    if (least == nullptr || rank(*sequence) < rank(*least)) least = sequence.get();
  }
  return *least;
}

void ContinuousBatchEngine::Loop::Preempt(Sequence& sequence) {
  runtime_->PublishEnd(*sequence.slot, sequence.tokens().first(sequence.computed()));
  runtime_->Release(*sequence.slot);
  sequence.slot.reset();
  sequence.Rewind();
  sequence.guaranteed = true;
  waiting_.PutBack({sequence.id(), sequence.priority(), sequence.positions()}, sequence.arrival);
  capacity_freed_ = true;
  ++preemptions_;
}

}  // namespace bulkhead::engine
