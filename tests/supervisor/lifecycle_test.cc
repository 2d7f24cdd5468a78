#include "supervisor/lifecycle.h"

#include <gtest/gtest.h>

#include <set>

namespace bulkhead::supervisor {
namespace {

using S = AllocationState;
using E = AllocationEvent;
using A = AllocationAction;

AllocationState StateAt(size_t index) { return static_cast<AllocationState>(index); }
AllocationEvent EventAt(size_t index) { return static_cast<AllocationEvent>(index); }

template <typename Check>
void ForEveryAllocationPair(Check check) {
  for (size_t s = 0; s < admission::kAllocationStateCount; ++s) {
    for (size_t e = 0; e < kAllocationEventCount; ++e) check(StateAt(s), EventAt(e), Step(StateAt(s), EventAt(e)));
  }
}

TEST(AllocationLifecycle, EveryPairMovesOnlyAlongTheDesignsArrows) {
  const std::set<std::pair<S, S>> arrows = {
      {S::kReserved, S::kStarting}, {S::kReserved, S::kFreed},  {S::kStarting, S::kLoading},
      {S::kStarting, S::kTeardown}, {S::kLoading, S::kIdle},    {S::kLoading, S::kTeardown},
      {S::kIdle, S::kBusy},         {S::kIdle, S::kTeardown},   {S::kBusy, S::kIdle},
      {S::kBusy, S::kTeardown},     {S::kTeardown, S::kReaped}, {S::kTeardown, S::kStuck},
      {S::kStuck, S::kReaped},      {S::kReaped, S::kSettled},  {S::kSettled, S::kFreed}};
  std::set<std::pair<S, S>> seen;
  ForEveryAllocationPair([&](S state, E event, AllocationStep step) {
    if (step.next == state) return;
    EXPECT_TRUE(arrows.contains({state, step.next})) << admission::NameOf(state) << " x " << NameOf(event);
    seen.insert({state, step.next});
  });
  EXPECT_EQ(seen, arrows) << "some arrow of the design is never taken";
}

TEST(AllocationLifecycle, IgnoredAndRejectedEventsChangeNothing) {
  ForEveryAllocationPair([](S state, E event, AllocationStep step) {
    if (step.action == A::kIgnore || step.action == A::kReject) {
      EXPECT_EQ(step.next, state) << NameOf(event);
    }
  });
}

TEST(AllocationLifecycle, EveryLivingStateCanBeStoppedFaultedAndMayExit) {
  for (const S state : {S::kStarting, S::kLoading, S::kIdle, S::kBusy}) {
    EXPECT_EQ(Step(state, E::kStop).action, A::kKill);
    EXPECT_EQ(Step(state, E::kFault).action, A::kKill);
    EXPECT_EQ(Step(state, E::kExit).action, A::kReap);
    EXPECT_EQ(Step(state, E::kExit).next, S::kTeardown);
  }
}

// Reap, settle, retire, answer: each only after the one before.
TEST(AllocationLifecycle, TheEndHasOneOrder) {
  ForEveryAllocationPair([](S state, E event, AllocationStep step) {
    if (step.action == A::kSettle) {
      EXPECT_EQ(event, E::kReaped);
    }
    if (step.action == A::kRetire && state != S::kReserved) {
      EXPECT_EQ(state, S::kReaped);
      EXPECT_EQ(event, E::kSettled);
    }
    if (step.action == A::kAnswer) {
      EXPECT_EQ(state, S::kSettled);
      EXPECT_EQ(event, E::kRetired);
    }
  });
}

TEST(AllocationLifecycle, NothingThatMayArriveLateIsRejectedOnceTheEndHasBegun) {
  for (const S state : {S::kTeardown, S::kStuck, S::kReaped, S::kSettled, S::kFreed}) {
    for (const E event : {E::kStop, E::kFault, E::kDrain, E::kRest, E::kExit}) {
      EXPECT_NE(Step(state, event).action, A::kReject) << admission::NameOf(state) << " x " << NameOf(event);
    }
  }
}

TEST(AllocationLifecycle, EveryEventAndActionHasANameOfItsOwn) {
  std::set<std::string_view> events;
  std::set<std::string_view> actions;
  for (size_t e = 0; e < kAllocationEventCount; ++e) events.insert(NameOf(EventAt(e)));
  for (int a = 0; a <= static_cast<int>(A::kRetryKill); ++a) actions.insert(NameOf(static_cast<A>(a)));
  EXPECT_EQ(events.size(), kAllocationEventCount);
  EXPECT_EQ(actions.size(), static_cast<size_t>(A::kRetryKill) + 1);
}

template <typename Check>
void ForEveryRequestPair(Check check) {
  for (size_t s = 0; s < kRequestStateCount; ++s) {
    for (size_t e = 0; e < kRequestEventCount; ++e) {
      const auto state = static_cast<RequestState>(s);
      const auto event = static_cast<RequestEvent>(e);
      check(state, event, Step(state, event));
    }
  }
}

TEST(RequestLifecycle, ATerminalStateIsNeverLeft) {
  ForEveryRequestPair([](RequestState state, RequestEvent event, RequestStep step) {
    if (!IsTerminal(state)) return;
    EXPECT_EQ(step.next, state) << NameOf(event);
    EXPECT_TRUE(step.action == RequestAction::kIgnore || step.action == RequestAction::kReject) << NameOf(event);
  });
}

TEST(RequestLifecycle, EveryOpenStateCanFailAndBeCancelled) {
  ForEveryRequestPair([](RequestState state, RequestEvent event, RequestStep step) {
    if (IsTerminal(state)) return;
    if (event == RequestEvent::kFail) {
      EXPECT_EQ(step.action, RequestAction::kEndError) << NameOf(state);
      EXPECT_EQ(step.next, RequestState::kFailed);
    }
    if (event == RequestEvent::kCancel) {
      EXPECT_NE(step.action, RequestAction::kReject) << NameOf(state);
    }
  });
}

TEST(RequestLifecycle, OnlyARequestInAWorkerProducesOrFinishes) {
  ForEveryRequestPair([](RequestState state, RequestEvent event, RequestStep step) {
    const bool in_worker = state == RequestState::kPrefill || state == RequestState::kDecode ||
                           state == RequestState::kPaused || state == RequestState::kCancelling;
    if (event == RequestEvent::kToken || event == RequestEvent::kFinish) {
      EXPECT_EQ(step.action != RequestAction::kReject, in_worker) << NameOf(state) << " x " << NameOf(event);
    }
  });
}

}  // namespace
}  // namespace bulkhead::supervisor
