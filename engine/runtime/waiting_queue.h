// Requests that wait for a slot or pages, and the order in which they get them: priority, then age; a waiter that 8
// younger ones have overtaken becomes a barrier that nobody passes. Pure; used by one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/runtime/generation.h"
#include "engine/runtime/plan_runtime.h"

namespace bulkhead::engine {

struct Waiter {
  uint64_t id = 0;
  Priority priority = Priority::kNormal;
  uint32_t tokens = 0;  // positions it may need
};

class WaitingQueue {
 public:
  static constexpr uint32_t kBypassLimit = 8;

  // The number of its arrival.
  uint64_t Push(Waiter waiter);
  // One that had been admitted waits again, in its old place.
  void PutBack(Waiter waiter, uint64_t arrival);
  // False where no such waiter is.
  bool Remove(uint64_t id);
  [[nodiscard]] size_t size() const { return entries_.size(); }
  // In order of arrival.
  [[nodiscard]] std::vector<uint64_t> Ids() const;

  // Offers capacity to waiters in order, as long as there is some. `admit` says what the runtime says; an admitted
  // waiter leaves the queue, one that never fits as well. `admit` may call Remove on the waiter it was given. True if
  // anyone was deferred.
  bool AdmitAll(const std::function<Admission(const Waiter&)>& admit);

 private:
  struct Entry {
    Waiter waiter;
    uint64_t arrival = 0;
    uint32_t bypassed = 0;
  };

  // Index of the next waiter to try among those not `tried`, or size(). `only_barrier` is set where nobody may be
  // tried after it.
  [[nodiscard]] size_t Next(const std::vector<uint64_t>& tried, bool* only_barrier) const;
  void Take(uint64_t arrival, bool admitted);

  std::vector<Entry> entries_;  // ascending by arrival
  uint64_t arrivals_ = 0;
};

}  // namespace bulkhead::engine
