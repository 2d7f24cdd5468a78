#include "engine/runtime/waiting_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bulkhead::engine {
namespace {

using testing::ElementsAre;
using Verdict = Admission::Verdict;

// Admits up to `slots` waiters whose tokens fit into `room`, and notes their ids in order.
struct Capacity {
  int slots = 100;
  uint32_t room = 1000;
  std::vector<uint64_t> admitted = {};

  Admission operator()(const Waiter& waiter) {
    if (slots == 0) return {Verdict::kDeferred, Shortage::kSequences, 0};
    if (waiter.tokens > room) return {Verdict::kDeferred, Shortage::kPages, 0};
    --slots;
    room -= waiter.tokens;
    admitted.push_back(waiter.id);
    return {Verdict::kAdmitted, Shortage::kSequences, 0};
  }
};

TEST(WaitingQueue, AdmitsByPriorityThenByAge) {
  WaitingQueue queue;
  queue.Push({1, Priority::kBatch, 1});
  queue.Push({2, Priority::kNormal, 1});
  queue.Push({3, Priority::kInteractive, 1});
  queue.Push({4, Priority::kNormal, 1});
  Capacity capacity;
  EXPECT_FALSE(queue.AdmitAll(std::ref(capacity)));
  EXPECT_THAT(capacity.admitted, ElementsAre(3, 2, 4, 1));
}

TEST(WaitingQueue, TriesNobodyElseWhereSlotsAreShort) {
  WaitingQueue queue;
  queue.Push({1, Priority::kNormal, 1});
  queue.Push({2, Priority::kNormal, 1});
  Capacity capacity{.slots = 1};
  EXPECT_TRUE(queue.AdmitAll(std::ref(capacity)));
  EXPECT_THAT(capacity.admitted, ElementsAre(1));
  EXPECT_THAT(queue.Ids(), ElementsAre(2));
}

TEST(WaitingQueue, ASmallerWaiterPassesOneThatLacksPages) {
  WaitingQueue queue;
  queue.Push({1, Priority::kNormal, 500});
  queue.Push({2, Priority::kNormal, 10});
  Capacity capacity{.room = 100};
  EXPECT_TRUE(queue.AdmitAll(std::ref(capacity)));
  EXPECT_THAT(capacity.admitted, ElementsAre(2));
}

TEST(WaitingQueue, AWaiterPassedEightTimesIsPassedNoMore) {
  WaitingQueue queue;
  queue.Push({1, Priority::kBatch, 500});
  Capacity capacity{.room = 100};
  for (uint64_t id = 2; id < 10; ++id) {
    queue.Push({id, Priority::kInteractive, 1});
    queue.AdmitAll(std::ref(capacity));
  }
  EXPECT_EQ(capacity.admitted.size(), 8u);
  queue.Push({10, Priority::kInteractive, 1});
  EXPECT_TRUE(queue.AdmitAll(std::ref(capacity)));
  EXPECT_EQ(capacity.admitted.size(), 8u) << "the ninth waits behind the barrier";
  capacity.room = 600;
  EXPECT_FALSE(queue.AdmitAll(std::ref(capacity)));
  EXPECT_THAT(std::vector(capacity.admitted.end() - 2, capacity.admitted.end()), ElementsAre(1, 10));
}

TEST(WaitingQueue, AWaiterThatNeverFitsLeaves) {
  WaitingQueue queue;
  queue.Push({1, Priority::kNormal, 1});
  EXPECT_FALSE(queue.AdmitAll([](const Waiter&) { return Admission{}; }));
  EXPECT_EQ(queue.size(), 0u);
}

TEST(WaitingQueue, TheOneBeingAdmittedMayBeRemoved) {
  WaitingQueue queue;
  queue.Push({1, Priority::kNormal, 1});
  queue.Push({2, Priority::kNormal, 1});
  std::vector<uint64_t> seen;
  queue.AdmitAll([&](const Waiter& waiter) {
    seen.push_back(waiter.id);
    queue.Remove(waiter.id);
    return Admission{Verdict::kAdmitted, Shortage::kSequences, 0};
  });
  EXPECT_THAT(seen, ElementsAre(1, 2));
}

}  // namespace
}  // namespace bulkhead::engine
