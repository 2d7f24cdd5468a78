#include "engine/runtime/waiting_queue.h"

#include <algorithm>

namespace bulkhead::engine {
namespace {

int Rank(Priority priority) {
  switch (priority) {
    case Priority::kInteractive:
      return 0;
    case Priority::kNormal:
      return 1;
    case Priority::kBatch:
      return 2;
  }
  return 1;
}

}  // namespace

uint64_t WaitingQueue::Push(Waiter waiter) {
  entries_.push_back({waiter, arrivals_, 0});
  return arrivals_++;
}

void WaitingQueue::PutBack(Waiter waiter, uint64_t arrival) {
  const auto place =
      std::find_if(entries_.begin(), entries_.end(), [arrival](const Entry& entry) { return entry.arrival > arrival; });
  entries_.insert(place, {waiter, arrival, 0});
}

bool WaitingQueue::Remove(uint64_t id) {
  return std::erase_if(entries_, [id](const Entry& entry) { return entry.waiter.id == id; }) > 0;
}

std::vector<uint64_t> WaitingQueue::Ids() const {
  std::vector<uint64_t> ids;
  for (const Entry& entry : entries_) ids.push_back(entry.waiter.id);
  return ids;
}

size_t WaitingQueue::Next(const std::vector<uint64_t>& tried, bool* only_barrier) const {
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].bypassed >= kBypassLimit) {
      *only_barrier = true;
      return i;  // the oldest barrier
    }
  }
  size_t best = entries_.size();
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (std::find(tried.begin(), tried.end(), entries_[i].arrival) != tried.end()) continue;
    if (best == entries_.size() || Rank(entries_[i].waiter.priority) < Rank(entries_[best].waiter.priority)) best = i;
  }
  return best;
}

void WaitingQueue::Take(uint64_t arrival, bool admitted) {
  for (Entry& entry : entries_) {
    if (admitted && entry.arrival < arrival) ++entry.bypassed;
  }
  std::erase_if(entries_, [arrival](const Entry& entry) { return entry.arrival == arrival; });
}

bool WaitingQueue::AdmitAll(const std::function<Admission(const Waiter&)>& admit) {
  std::vector<uint64_t> tried;
  while (true) {
    bool only_barrier = false;
    const size_t index = Next(tried, &only_barrier);
    if (index == entries_.size()) return !tried.empty();
    const uint64_t arrival = entries_[index].arrival;
    const Waiter waiter = entries_[index].waiter;
    const Admission admission = admit(waiter);
    if (admission.verdict != Admission::Verdict::kDeferred) {
      Take(arrival, admission.verdict == Admission::Verdict::kAdmitted);
      continue;
    }
    if (only_barrier || admission.shortage == Shortage::kSequences) return true;
    tried.push_back(arrival);
  }
}

}  // namespace bulkhead::engine
