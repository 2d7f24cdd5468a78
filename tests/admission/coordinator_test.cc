#include "admission/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace bulkhead::admission {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint64_t kMib = uint64_t{1} << 20;
constexpr uint64_t kGib = uint64_t{1} << 30;

// 1 MiB of KV a page of 256 positions: a default sequence is 32 MiB, four are 128 MiB.
std::shared_ptr<const ModelFacts> Facts(const char* name, uint64_t inode, uint64_t weights = 100 * kMib) {
  auto facts = std::make_shared<ModelFacts>();
  facts->model = name;
  facts->file = {.device = 1, .inode = inode, .size = weights, .mtime_ns = 1};
  facts->weight_bytes = weights;
  facts->kv_bytes_per_token = 4096;
  facts->trained_context = 16384;
  return facts;
}

class CoordinatorTest : public testing::Test {
 protected:
  CoordinatorTest() {
    coordinator_.Tick({seconds(100), seconds(200)});
    coordinator_.SetLiveMemory(LiveMemory{.total_bytes = 16 * kGib, .available_bytes = 16 * kGib});
  }

  static Policy Custom(uint64_t bytes) {
    Policy policy;
    policy.profile = Profile::kCustom;
    policy.custom_bytes = bytes;
    policy.ram_bytes = 16 * kGib;
    policy.max_waiting = 4;
    policy.max_waiting_per_model = 2;
    return policy;
  }

  Outcome Ask(std::shared_ptr<const ModelFacts> facts, Priority priority = Priority::kNormal) {
    AdmitRequest request;
    request.facts = std::move(facts);
    request.priority = priority;
    request.deadline = coordinator_.now().monotonic + seconds(10);
    return coordinator_.Request(request);
  }

  template <typename Kind>
  std::vector<Kind> Take() {
    std::vector<Kind> found;
    for (const Action& action : coordinator_.TakeActions()) {
      if (const Kind* one = std::get_if<Kind>(&action)) found.push_back(*one);
    }
    return found;
  }

  // A ready worker with the ticket's lease on it.
  AllocationId Load(const Ticket& ticket) {
    const AllocationId id = coordinator_.LeaseOf(ticket.id());
    EXPECT_TRUE(coordinator_.SpawnStarted(id) && coordinator_.LoadStarted(id) && coordinator_.LoadFinished(id));
    return id;
  }
  AllocationId LoadIdle(std::shared_ptr<const ModelFacts> facts) {
    const Outcome outcome = Ask(std::move(facts));
    return Load(outcome.ticket);
  }
  void Retire(AllocationId id) {
    EXPECT_TRUE(coordinator_.TeardownStarted(id) && coordinator_.Reaped(id));
    coordinator_.SetLiveMemory(LiveMemory{.total_bytes = 16 * kGib, .available_bytes = 16 * kGib});
    EXPECT_TRUE(coordinator_.Settle(id) && coordinator_.Free(id));
  }

  AdmissionCoordinator coordinator_{Custom(300 * kMib)};
};

TEST_F(CoordinatorTest, AdmitsWhatFitsAndChargesIt) {
  const Outcome outcome = Ask(Facts("a", 1));
  EXPECT_EQ(outcome.verdict, Verdict::kAllowed);
  const auto spawns = Take<SpawnAction>();
  ASSERT_EQ(spawns.size(), 1u);
  EXPECT_EQ(spawns[0].shape, (Shape{8192, 4}));
  EXPECT_EQ(coordinator_.budget().charged_bytes, 228 * kMib);
}

TEST_F(CoordinatorTest, ThePoolShrinksToFit) {
  const Outcome outcome = Ask(Facts("b", 2, 200 * kMib));
  EXPECT_EQ(outcome.verdict, Verdict::kAllowed);
  EXPECT_EQ(Take<SpawnAction>().back().shape.sequences, 3u);
}

TEST_F(CoordinatorTest, RefusesAtOnceWhatCanNeverFitAndNamesTheNumbers) {
  const Outcome outcome = Ask(Facts("a", 1, kGib));
  EXPECT_EQ(outcome.verdict, Verdict::kExceedsCeiling);
  EXPECT_EQ(outcome.refusal.limit, 300 * kMib);
  EXPECT_EQ(outcome.refusal.asked, kGib + 32 * kMib);
  EXPECT_THAT(outcome.refusal.message, HasSubstr("300.0 MiB"));
  EXPECT_FALSE(outcome.ticket);
}

TEST_F(CoordinatorTest, RefusesWhereThePolicyAllowsNothing) {
  ASSERT_TRUE(coordinator_.SetPolicy(Custom(0), 2));
  EXPECT_EQ(Ask(Facts("a", 1)).verdict, Verdict::kDisabledByPolicy);
}

TEST_F(CoordinatorTest, RefusesALoadWhileLiveMemoryIsUnknownButServesWhatIsResident) {
  const Outcome loader = Ask(Facts("a", 1));
  Load(loader.ticket);
  coordinator_.SetLiveMemory(std::nullopt);
  EXPECT_EQ(Ask(Facts("a", 1)).verdict, Verdict::kAllowed);
  EXPECT_EQ(Ask(Facts("b", 2, kMib)).verdict, Verdict::kLiveMemoryUnknown);
}

TEST_F(CoordinatorTest, WaitsForLiveMemoryAndTwoLoadsCannotSpendOneReading) {
  coordinator_.SetLiveMemory(LiveMemory{.total_bytes = 16 * kGib, .available_bytes = 2 * kGib + 150 * kMib});
  ASSERT_TRUE(coordinator_.SetPolicy(Custom(8 * kGib), 2));
  const Outcome first = Ask(Facts("a", 1));
  EXPECT_EQ(first.verdict, Verdict::kAllowed);
  const Outcome second = Ask(Facts("b", 2));
  EXPECT_EQ(second.verdict, Verdict::kInsufficientLiveMemory);
  (void)coordinator_.TakeActions();
  coordinator_.SetLiveMemory(LiveMemory{.total_bytes = 16 * kGib, .available_bytes = 8 * kGib});
  EXPECT_EQ(Take<SpawnAction>().size(), 1u);
}

TEST_F(CoordinatorTest, ABlockedModelIsRefusedWithTheCommandThatHelps) {
  coordinator_.SetBlocked("a", Verdict::kBreakerOpen, seconds(30));
  const Outcome outcome = Ask(Facts("a", 1));
  EXPECT_EQ(outcome.verdict, Verdict::kBreakerOpen);
  EXPECT_EQ(outcome.refusal.hint, "bulkhead unblock a");
  EXPECT_EQ(outcome.refusal.retry_after, seconds(30));
  coordinator_.SetBlocked("a", Verdict::kModelMaintenance);
  EXPECT_EQ(Ask(Facts("a", 1)).verdict, Verdict::kModelMaintenance);
  coordinator_.SetBlocked("a", Verdict::kAllowed);
  EXPECT_EQ(Ask(Facts("a", 1)).verdict, Verdict::kAllowed);
}

TEST_F(CoordinatorTest, BusyWorkersMakeOthersWaitAndTheDeadlineSaysWhy) {
  const Outcome busy = Ask(Facts("a", 1));
  Load(busy.ticket);
  const Outcome waits = Ask(Facts("b", 2, 150 * kMib));
  EXPECT_EQ(waits.verdict, Verdict::kWaitingForMemory);
  (void)coordinator_.TakeActions();
  coordinator_.Tick({seconds(111), seconds(211)});
  const auto refusals = Take<RefuseAction>();
  ASSERT_EQ(refusals.size(), 1u);
  EXPECT_EQ(refusals[0].refusal.reason, Reason::kWaitingForMemory);
}

TEST_F(CoordinatorTest, TheQueueIsBoundedPerModelAndInAll) {
  const Outcome busy = Ask(Facts("a", 1));
  Load(busy.ticket);
  std::vector<Outcome> waiting;
  for (int i = 0; i < 2; ++i) waiting.push_back(Ask(Facts("b", 2, 150 * kMib)));
  const Outcome of_model = Ask(Facts("b", 2, 150 * kMib));
  EXPECT_EQ(of_model.verdict, Verdict::kQueueFull);
  EXPECT_THAT(of_model.refusal.message, HasSubstr("2 requests wait for it, the limit is 2"));
  for (int i = 0; i < 2; ++i) waiting.push_back(Ask(Facts("c", 3, 150 * kMib)));
  EXPECT_EQ(Ask(Facts("d", 4, 150 * kMib)).verdict, Verdict::kQueueFull);
  EXPECT_EQ(Ask(Facts("a", 1)).verdict, Verdict::kAllowed) << "a resident model is not held up";
}

TEST_F(CoordinatorTest, IdleWorkersMakeRoomLeastRecentlyUsedFirst) {
  const AllocationId older = LoadIdle(Facts("a", 1, 10 * kMib));
  coordinator_.Tick({seconds(101), seconds(201)});
  const AllocationId newer = LoadIdle(Facts("b", 2, 10 * kMib));
  (void)coordinator_.TakeActions();
  const Outcome outcome = Ask(Facts("c", 3, 130 * kMib));
  EXPECT_EQ(outcome.verdict, Verdict::kPendingTeardown);
  const auto evictions = Take<EvictAction>();
  ASSERT_EQ(evictions.size(), 1u);
  EXPECT_EQ(evictions[0].allocation, older);
  Retire(older);
  EXPECT_EQ(Take<SpawnAction>().size(), 1u);
  EXPECT_NE(coordinator_.ledger().Find(newer), nullptr);
}

TEST_F(CoordinatorTest, PinnedWorkersStay) {
  LoadIdle(Facts("a", 1));
  coordinator_.SetPinned("a", true);
  EXPECT_EQ(Ask(Facts("b", 2, 150 * kMib)).verdict, Verdict::kWaitingForMemory);
  EXPECT_TRUE(coordinator_.ReleaseIdle({}).empty());
  EXPECT_TRUE(Take<EvictAction>().empty());
}

TEST_F(CoordinatorTest, WeightsOfOneFileAreChargedOnce) {
  ASSERT_TRUE(coordinator_.SetPolicy(Custom(kGib), 2));
  const Outcome one = Ask(Facts("a", 1));
  const Outcome other = Ask(Facts("by-another-name", 1));
  EXPECT_EQ(coordinator_.budget().charged_bytes, (100 + 128 + 128) * kMib);
}

TEST_F(CoordinatorTest, MeasuredGrowthRaisesTheChargeAndTheNextEstimate) {
  const Outcome outcome = Ask(Facts("a", 1));
  const AllocationId id = Load(outcome.ticket);
  ASSERT_TRUE(coordinator_.Measured(id, 150 * kMib));
  ASSERT_TRUE(coordinator_.Measured(id, 20 * kMib));
  EXPECT_EQ(coordinator_.budget().charged_bytes, 250 * kMib);
  Retire(id);
  EXPECT_EQ(coordinator_.budget().charged_bytes, 0u);
  EXPECT_EQ(coordinator_.learned().Peak({1, 1, 100 * kMib, 1}, {8192, 4}), 150 * kMib);
}

class PressureTest : public CoordinatorTest {
 protected:
  // Charges of 228 MiB each; what is left to spare after reserve, weights and untouched memory is `spare`.
  void SetSpare(uint64_t spare, const std::vector<AllocationId>& touched) {
    for (const AllocationId id : touched) {
      if (coordinator_.ledger().Find(id) != nullptr) (void)coordinator_.Measured(id, 128 * kMib);
    }
    const uint64_t weights = coordinator_.ledger().entries().size() * 100 * kMib;
    coordinator_.SetLiveMemory(
        LiveMemory{.total_bytes = 16 * kGib, .available_bytes = LiveReserve(16 * kGib) + weights + spare});
  }
  void Wait(Duration by) {
    time_ += by;
    coordinator_.Tick({time_, time_});
  }
  std::vector<AllocationId> Evicted() {
    std::vector<AllocationId> ids;
    for (const EvictAction& evict : Take<EvictAction>()) {
      EXPECT_EQ(evict.cause, EvictionCause::kPressure);
      ids.push_back(evict.allocation);
    }
    return ids;
  }
  Duration time_ = std::chrono::seconds(10000);
};

TEST_F(PressureTest, GoneHeadroomReleasesTheLeastRecentlyUsedIdleOnesUntilThereIsRelief) {
  ASSERT_TRUE(coordinator_.SetPolicy(Custom(8 * kGib), 2));
  Wait(std::chrono::seconds(1));
  const AllocationId old = LoadIdle(Facts("old", 1));
  Wait(std::chrono::seconds(1));
  const AllocationId recent = LoadIdle(Facts("recent", 2));
  const Outcome outcome = Ask(Facts("busy", 3));
  const AllocationId busy = Load(outcome.ticket);
  SetSpare(0, {old, recent, busy});
  EXPECT_TRUE(Evicted().empty()) << "nothing is short yet";
  const auto too_little = [&] {
    coordinator_.SetLiveMemory(
        LiveMemory{.total_bytes = 16 * kGib, .available_bytes = LiveReserve(16 * kGib) + 300 * kMib - kMib});
  };
  too_little();
  EXPECT_TRUE(Evicted().empty()) << "a moment is no reason";
  Wait(kPressureFor);
  too_little();
  // One worker's 228 MiB are not the relief of 256 MiB that is wanted; two are.
  EXPECT_EQ(Evicted(), (std::vector<AllocationId>{old, recent}));
  Wait(kPressureFor);
  too_little();
  EXPECT_TRUE(Evicted().empty()) << "what is leaving is counted, and the busy one stays";
}

TEST_F(PressureTest, OneReadingWithHeadroomStartsTheWaitAnew) {
  ASSERT_TRUE(coordinator_.SetPolicy(Custom(8 * kGib), 2));
  Wait(std::chrono::seconds(1));
  const AllocationId idle = LoadIdle(Facts("idle", 1));
  SetSpare(kGib, {idle});
  const auto read = [&](uint64_t available) {
    coordinator_.SetLiveMemory(LiveMemory{.total_bytes = 16 * kGib, .available_bytes = available});
  };
  read(kGib);
  Wait(kPressureFor - std::chrono::milliseconds(1));
  read(8 * kGib);
  Wait(std::chrono::milliseconds(2));
  read(kGib);
  EXPECT_TRUE(Evicted().empty());
  Wait(kPressureFor);
  read(kGib);
  EXPECT_EQ(Evicted(), std::vector<AllocationId>{idle});
}

TEST_F(PressureTest, PinnedWorkersStayAndAnUnknownReadingDecidesNothing) {
  ASSERT_TRUE(coordinator_.SetPolicy(Custom(8 * kGib), 2));
  Wait(std::chrono::seconds(1));
  LoadIdle(Facts("pinned", 1));
  coordinator_.SetPinned("pinned", true);
  for (int i = 0; i < 4; ++i) {
    coordinator_.SetLiveMemory(LiveMemory{.total_bytes = 16 * kGib, .available_bytes = kMib});
    Wait(kPressureFor);
  }
  EXPECT_TRUE(Evicted().empty());
  coordinator_.SetPinned("pinned", false);
  coordinator_.SetLiveMemory(std::nullopt);
  EXPECT_TRUE(Evicted().empty());
}

TEST_F(CoordinatorTest, AWorkerThatRunsOutInItsWorkRaisesTheNextEstimateTwiceAtMost) {
  ASSERT_TRUE(coordinator_.SetPolicy(Custom(8 * kGib), 2));
  for (int i = 1; i <= 3; ++i) {
    const Outcome outcome = Ask(Facts("a", 1));
    const AllocationId id = Load(outcome.ticket);
    EXPECT_EQ(coordinator_.RanOutOfMemory(id, 200 * kMib * static_cast<uint64_t>(i)), i <= 2);
    Retire(id);
  }
  const uint64_t raised = 400 * kMib + 50 * kMib;
  EXPECT_EQ(coordinator_.learned().Peak({1, 1, 100 * kMib, 1}, {8192, 4}), raised);
  // Service that ends otherwise grants the retries anew.
  Retire(LoadIdle(Facts("a", 1)));
  const AllocationId id = LoadIdle(Facts("a", 1));
  EXPECT_TRUE(coordinator_.RanOutOfMemory(id, 500 * kMib));
}

TEST_F(CoordinatorTest, DroppingATicketNeverRetiresTheChargeOfALiveProcess) {
  Outcome outcome = Ask(Facts("a", 1));
  const AllocationId id = coordinator_.LeaseOf(outcome.ticket.id());
  ASSERT_TRUE(coordinator_.SpawnStarted(id));
  outcome.ticket.Drop();
  EXPECT_EQ(coordinator_.budget().charged_bytes, 228 * kMib);
}

TEST_F(CoordinatorTest, AReservationIsGivenUpWithItsLastTicket) {
  { const Outcome outcome = Ask(Facts("a", 1)); }
  EXPECT_EQ(coordinator_.budget().charged_bytes, 0u);
}

TEST_F(CoordinatorTest, RetirementTakesReapSettleAndFreeInThisOrderAndConfirmsOnce) {
  const AllocationId id = LoadIdle(Facts("a", 1));
  ASSERT_TRUE(coordinator_.AwaitRetired(id, 77));
  ASSERT_TRUE(coordinator_.TeardownStarted(id));
  EXPECT_FALSE(coordinator_.Settle(id));
  EXPECT_FALSE(coordinator_.Free(id));
  ASSERT_TRUE(coordinator_.KillUnconfirmed(id));
  EXPECT_EQ(Take<UnconfirmedAction>().size(), 1u);
  EXPECT_EQ(coordinator_.budget().charged_bytes, 228 * kMib) << "STUCK stays charged";
  ASSERT_TRUE(coordinator_.Reaped(id));
  EXPECT_FALSE(coordinator_.Free(id));
  ASSERT_TRUE(coordinator_.Settle(id));
  EXPECT_TRUE(Take<ConfirmAction>().empty());
  ASSERT_TRUE(coordinator_.Free(id));
  EXPECT_EQ(Take<ConfirmAction>().size(), 1u);
  EXPECT_FALSE(coordinator_.Free(id));
  ASSERT_TRUE(coordinator_.AwaitRetired(id, 78)) << "who asks later gets the same answer";
  EXPECT_EQ(Take<ConfirmAction>().size(), 1u);
  EXPECT_FALSE(coordinator_.AwaitRetired(id + 1, 79));
}

TEST_F(CoordinatorTest, TheLoaderIsServedFirst) {
  const Outcome loader = Ask(Facts("a", 1), Priority::kBatch);
  const Outcome urgent = Ask(Facts("a", 1), Priority::kInteractive);
  (void)coordinator_.TakeActions();
  Load(loader.ticket);
  const auto grants = Take<GrantAction>();
  ASSERT_EQ(grants.size(), 2u);
  EXPECT_EQ(grants[0].ticket, loader.ticket.id());
  EXPECT_EQ(grants[1].ticket, urgent.ticket.id());
}

TEST_F(CoordinatorTest, PriorityOrdersWaitersAndAgeingLiftsTheOld) {
  Outcome busy = Ask(Facts("a", 1));
  const AllocationId id = Load(busy.ticket);
  std::vector<Outcome> rest;
  for (int i = 0; i < 3; ++i) rest.push_back(Ask(Facts("a", 1)));
  const Outcome batch = Ask(Facts("a", 1), Priority::kBatch);
  const Outcome urgent = Ask(Facts("a", 1), Priority::kInteractive);
  EXPECT_EQ(coordinator_.Position(urgent.ticket.id()), 1u);
  EXPECT_EQ(coordinator_.Position(batch.ticket.id()), 2u);
  busy.ticket.Drop();
  EXPECT_EQ(coordinator_.LeaseOf(urgent.ticket.id()), id);
  EXPECT_EQ(WaitQueue::Rank(Priority::kBatch, seconds(14), seconds(15)), 2u);
  EXPECT_EQ(WaitQueue::Rank(Priority::kBatch, seconds(30), seconds(15)), 0u);
}

TEST_F(CoordinatorTest, ALargerContextRespawnsTheIdleWorker) {
  const AllocationId small = LoadIdle(Facts("a", 1, 10 * kMib));
  (void)coordinator_.TakeActions();
  AdmitRequest request;
  request.facts = Facts("a", 1, 10 * kMib);
  request.context = 16384;
  const Outcome outcome = coordinator_.Request(request);
  EXPECT_EQ(outcome.verdict, Verdict::kPendingTeardown);
  EXPECT_EQ(Take<EvictAction>().at(0).cause, EvictionCause::kOutgrown);
  Retire(small);
  EXPECT_EQ(Take<SpawnAction>().at(0).shape.context, 16384u);
}

TEST_F(CoordinatorTest, AContextBeyondTheTrainedOneIsRefusedWithTheMostThereIs) {
  AdmitRequest request;
  request.facts = Facts("a", 1, 10 * kMib);
  request.context = 20000;
  const Outcome outcome = coordinator_.Request(request);
  EXPECT_EQ(outcome.verdict, Verdict::kContextTooLarge);
  EXPECT_EQ(outcome.refusal.asked, 20000u);
  EXPECT_EQ(outcome.refusal.limit, 16384u);
}

TEST_F(CoordinatorTest, PolicyOnlyMovesForwardAndAShrinkReleasesIdleWorkersOnly) {
  const AllocationId idle = LoadIdle(Facts("a", 1, 10 * kMib));
  const Outcome busy = Ask(Facts("b", 2, 10 * kMib));
  Load(busy.ticket);
  (void)coordinator_.TakeActions();
  ASSERT_TRUE(coordinator_.SetPolicy(Custom(100 * kMib), 5));
  const auto evictions = Take<EvictAction>();
  ASSERT_EQ(evictions.size(), 1u);
  EXPECT_EQ(evictions[0].allocation, idle);
  EXPECT_FALSE(coordinator_.SetPolicy(Custom(kGib), 5));
  EXPECT_FALSE(coordinator_.SetPolicy(Custom(kGib), 4));
  EXPECT_EQ(coordinator_.budget().ceiling_bytes, 100 * kMib);
}

TEST_F(CoordinatorTest, IdlenessCountsSuspendAndSparesTheRecent) {
  const AllocationId idle = LoadIdle(Facts("a", 1, 10 * kMib));
  EXPECT_TRUE(coordinator_.ReleaseIdle(seconds(60)).empty());
  coordinator_.Tick({seconds(100), seconds(260)});
  EXPECT_THAT(coordinator_.ReleaseIdle(seconds(60)), ElementsAre(idle));
  EXPECT_EQ(coordinator_.ledger().Find(idle)->state, AllocationState::kTeardown);
}

TEST_F(CoordinatorTest, PreflightShowsItsArithmeticAndChangesNothing) {
  AdmitRequest request;
  request.facts = Facts("a", 1);
  const PreflightReport report = coordinator_.Preflight(request);
  EXPECT_EQ(report.verdict, Verdict::kAllowed);
  EXPECT_EQ(report.estimate.Total(), 228 * kMib);
  ASSERT_FALSE(report.lines.empty());
  EXPECT_EQ(report.lines[0].what, "weights");
  EXPECT_EQ(report.lines[0].bytes, static_cast<int64_t>(100 * kMib));
  EXPECT_EQ(coordinator_.budget().charged_bytes, 0u);
  EXPECT_TRUE(coordinator_.TakeActions().empty());
}

TEST_F(CoordinatorTest, AnAbsurdFileIsRefusedNotWrapped) {
  auto facts = std::make_shared<ModelFacts>(*Facts("a", 1));
  facts->kv_bytes_per_token = UINT64_MAX / 2;
  EXPECT_EQ(Ask(facts).verdict, Verdict::kExceedsCeiling);
}

TEST_F(CoordinatorTest, AnAbsurdMeasurementSaturates) {
  const Outcome outcome = Ask(Facts("a", 1));
  const AllocationId id = Load(outcome.ticket);
  ASSERT_TRUE(coordinator_.Measured(id, UINT64_MAX));
  EXPECT_EQ(coordinator_.budget().charged_bytes, UINT64_MAX);
  EXPECT_EQ(Ask(Facts("b", 2)).verdict, Verdict::kWaitingForMemory);
}

}  // namespace
}  // namespace bulkhead::admission
