// The engine where there is too little of something: pages, slots, time, or patience.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>

#include "tests/engine/runtime/engine_fixture.h"

namespace bulkhead::engine {
namespace {

using testing::ElementsAreArray;

// Calls `hook` whenever the engine looks at the time, which it does between layers too. Time moves only by hand.
class HookedClock final : public Clock {
 public:
  std::function<void()> hook;
  std::atomic<int64_t> seconds{100};

  [[nodiscard]] Duration Monotonic() const override {
    if (hook && !inside_) {
      inside_ = true;
      hook();
      inside_ = false;
    }
    return std::chrono::seconds(seconds.load());
  }
  [[nodiscard]] Duration Boottime() const override { return Monotonic(); }
  [[nodiscard]] Duration Wall() const override { return Monotonic(); }

 private:
  static thread_local bool inside_;
};

thread_local bool HookedClock::inside_ = false;

TEST_F(EngineTest, WithPagesForHalfOfThemAllFinishWithTheSameText) {
  // Two pages each, and half as many.
  constexpr uint32_t kRequests = kSanitized ? 4 : 8;
  std::vector<GenerationRequest> requests;
  for (uint64_t id = 1; id <= kRequests; ++id) {
    requests.push_back(Sampled(id, Prompt(id, 30 + 3 * static_cast<uint32_t>(id)), 70));
  }
  Start({.context = 256, .sequences = kRequests, .kv_tokens = kRequests * kPagePositions});
  SubmitTogether(requests);
  for (const GenerationRequest& request : requests) {
    const Answer answer = sink_.AwaitEnd(request.id);
    const Answer alone = Alone(request);
    EXPECT_THAT(answer.ids, ElementsAreArray(alone.ids)) << "request " << request.id;
    EXPECT_EQ(answer.text, alone.text);
    EXPECT_EQ(answer.started, 1);
    EXPECT_EQ(answer.usage.prompt_tokens, request.prompt_ids.size());
    EXPECT_EQ(answer.usage.cached_tokens, 0u) << "what it computed twice is nobody's saving";
    EXPECT_FALSE(answer.out_of_order);
  }
  const EngineSnapshot snapshot = engine_->Snapshot();
  EXPECT_GE(snapshot.preemptions, 1u);
  EXPECT_LE(snapshot.preemptions, kRequests) << "at most one a request";
  EXPECT_EQ(snapshot.kv_pages_free + snapshot.kv_pages_idle, snapshot.kv_pages_total);
}

TEST_F(EngineTest, TheLeastImportantRequestGivesItsPagesUp) {
  Start({.context = 256, .sequences = 3, .kv_tokens = 6 * kPagePositions});
  std::vector<uint64_t> ended;
  sink_.hook = [&](const SequenceOutput& output) {
    if (output.terminal()) ended.push_back(output.id);
  };
  GenerationRequest batch = Greedy(1, Prompt(1, 60), 90);
  batch.priority = Priority::kBatch;
  GenerationRequest interactive = Greedy(3, Prompt(3, 60), 90);
  interactive.priority = Priority::kInteractive;
  SubmitTogether({batch, Greedy(2, Prompt(2, 60), 90), interactive});
  for (uint64_t id = 1; id <= 3; ++id) EXPECT_EQ(sink_.AwaitEnd(id).ids.size(), 90u);
  EXPECT_EQ(ended.back(), 1u);
  EXPECT_EQ(engine_->Snapshot().preemptions, 1u);
}

TEST_F(EngineTest, AtMostEightSmallerRequestsPassOneThatLacksPages) {
  Start({.context = 256, .sequences = 4, .kv_tokens = 4 * kPagePositions});
  std::vector<uint64_t> began;
  sink_.hook = [&](const SequenceOutput& output) {
    if (std::find(began.begin(), began.end(), output.id) == began.end()) began.push_back(output.id);
    if (output.id != 1 || output.index != 0) return;
    // The first one keeps two pages, so the second lacks one; everybody after it would fit.
    engine_->Pause(1);
    ASSERT_TRUE(engine_->Submit(Greedy(2, Prompt(2, 150), 2)).ok());
    for (uint64_t id = 3; id <= 14; ++id) ASSERT_TRUE(engine_->Submit(Greedy(id, Prompt(id, 10), 2)).ok());
  };
  ASSERT_TRUE(engine_->Submit(Greedy(1, Prompt(1, 100), 5)).ok());
  sink_.AwaitEnd(10);
  const EngineSnapshot blocked = engine_->Snapshot();
  EXPECT_TRUE(blocked.capacity_blocked);
  EXPECT_EQ(blocked.waiting, 5u);
  engine_->Unpause(1);
  for (uint64_t id = 1; id <= 14; ++id) EXPECT_EQ(sink_.AwaitEnd(id).error, absl::OkStatus());
  EXPECT_EQ(std::find(began.begin(), began.end(), 2u) - began.begin(), 1 + 8);
}

TEST_F(EngineTest, ALongPromptPutsAtMostOneChunkBetweenTwoTokensOfAStream) {
  constexpr uint32_t kChunk = 16;
  Start({.context = 256, .sequences = 2}, kChunk);
  uint64_t last = 0;
  uint64_t worst = 0;
  uint64_t beside = 0;
  sink_.hook = [&](const SequenceOutput& output) {
    if (output.id != 1) return;
    const EngineSnapshot now = engine_->Snapshot();
    if (output.index == 2) {
      ASSERT_TRUE(engine_->Submit(Greedy(2, Prompt(2, 240), 1)).ok());
    }
    if (last != 0) worst = std::max(worst, now.tokens_prefilled - last);
    if (now.active_prefill > 0) ++beside;
    last = now.tokens_prefilled;
  };
  ASSERT_TRUE(engine_->Submit(Greedy(1, Prompt(1, 10), 100)).ok());
  sink_.AwaitEnd(1);
  sink_.AwaitEnd(2);
  EXPECT_EQ(worst, kChunk);
  EXPECT_GE(beside, 240 / kChunk - 1) << "the stream went on while the prompt was loading";
}

TEST_F(EngineTest, CancelFreesPagesWithinOneStepWhereverTheRequestIs) {
  Start({.context = 256, .sequences = 2}, 8);
  uint64_t asked = 0;
  std::map<uint64_t, uint64_t> took;
  std::map<uint64_t, EngineSnapshot> after;
  const auto cancel = [&](uint64_t id) {
    asked = engine_->Snapshot().steps;
    engine_->Cancel(id);
  };
  sink_.hook = [&](const SequenceOutput& output) {
    const EngineSnapshot now = engine_->Snapshot();
    if (output.terminal()) {
      took[output.id] = now.steps - asked;
      after[output.id] = now;
      if (output.id == 3) cancel(2);
      if (output.id == 2) cancel(1);
    } else if (output.index == 5) {
      cancel(3);
    }
  };
  SubmitTogether({Greedy(1, Prompt(1, 10), 0), Greedy(2, Prompt(2, 250), 0), Greedy(3, Prompt(3, 10), 0)});
  for (uint64_t id = 1; id <= 3; ++id) {
    EXPECT_EQ(sink_.AwaitEnd(id).finish, FinishReason::kCancelled);
    EXPECT_LE(took[id], 1u) << "request " << id;
  }
  EXPECT_TRUE(sink_.Now(3).ids.empty()) << "it was waiting";
  EXPECT_TRUE(sink_.Now(2).ids.empty()) << "it was in its prefill";
  EXPECT_GT(sink_.Now(1).ids.size(), 5u) << "it was decoding";
  EXPECT_EQ(after[1].kv_pages_free + after[1].kv_pages_idle, after[1].kv_pages_total);
  EXPECT_EQ(after[1].kv_pages_reserved, 0u);
}

TEST_F(EngineTest, ADuplicateIdLeavesNoResidue) {
  Start({.context = 256, .sequences = 1});
  sink_.hook = [this](const SequenceOutput& output) {
    if (output.id != 1 || output.index != 0) return;
    ASSERT_TRUE(engine_->Submit(Greedy(2, Prompt(2, 10), 3)).ok());
    for (int i = 0; i < 50; ++i) {
      EXPECT_EQ(ReasonOf(engine_->Submit(Greedy(2, Prompt(3, 50), 9))), Reason::kInvalidRequest);
    }
    EXPECT_EQ(engine_->Snapshot().waiting, 1u) << "the refused ones do not fill the queue";
  };
  Run(Greedy(1, Prompt(1, 10), 5));
  EXPECT_THAT(sink_.AwaitEnd(2).ids, ElementsAreArray(Alone(Greedy(2, Prompt(2, 10), 3)).ids));
  Settle();
  EXPECT_EQ(engine_->Snapshot().waiting, 0u);
  sink_.ExpectFirstIndex(2, 0);
  EXPECT_TRUE(engine_->Submit(Greedy(2, Prompt(2, 10), 3)).ok()) << "once it has ended its id is free again";
}

TEST_F(EngineTest, ARequestSubmittedDuringAForwardRunsAfterIt) {
  HookedClock clock;
  adjust_ = [&](ContinuousBatchEngine::Options& options) { options.clock = &clock; };
  std::atomic<ContinuousBatchEngine*> engine{nullptr};
  std::atomic<int> looks{0};
  // Of a forward it looks first as it begins, then before each layer.
  clock.hook = [&] {
    ContinuousBatchEngine* const running = engine;
    if (running == nullptr || running->phase() == EnginePhase::kIdle || ++looks != 3) return;
    EXPECT_EQ(running->Snapshot().steps, 0u);
    EXPECT_TRUE(running->Submit(Sampled(2, Prompt(2, 20), 10)).ok());
  };
  Start({.context = 256, .sequences = 2}, 64);
  engine = engine_.get();
  ASSERT_TRUE(engine_->Submit(Sampled(1, Prompt(1, 50), 10)).ok());
  EXPECT_THAT(sink_.AwaitEnd(1).ids, ElementsAreArray(Alone(Sampled(1, Prompt(1, 50), 10)).ids));
  EXPECT_THAT(sink_.AwaitEnd(2).ids, ElementsAreArray(Alone(Sampled(2, Prompt(2, 20), 10)).ids));
  engine_.reset();  // before its clock
}

TEST_F(EngineTest, IsHealthyFromTheStartAndNotWhileItsLoopIsStuck) {
  HookedClock clock;
  adjust_ = [&](ContinuousBatchEngine::Options& options) { options.clock = &clock; };
  Start();
  EXPECT_TRUE(engine_->Health().healthy);
  Run(Greedy(1, Prompt(1, 10), 3));
  clock.seconds += 1000;
  std::mutex mutex;
  std::condition_variable changed;
  bool stuck = false;
  bool release = false;
  engine_->Post([&] {
    std::unique_lock lock(mutex);
    stuck = true;
    changed.notify_all();
    changed.wait_for(lock, std::chrono::seconds(60), [&] { return release; });
  });
  std::unique_lock lock(mutex);
  ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return stuck; }));
  EXPECT_TRUE(engine_->Health().healthy) << "it slept for long, which is no fault";
  clock.seconds += 31;
  EXPECT_FALSE(engine_->Health().healthy);
  EXPECT_EQ(engine_->Health().heartbeat_age, std::chrono::seconds(31));
  EXPECT_EQ(engine_->Snapshot().heartbeat_age_ns, 31000000000u);
  release = true;
  lock.unlock();
  changed.notify_all();
  Run(Greedy(2, Prompt(1, 10), 3));
  EXPECT_TRUE(engine_->Health().healthy);
  engine_->Shutdown(Duration(0));
  engine_.reset();  // before its clock
}

TEST_F(EngineTest, SnapshotsMatchWhatIsUnderWay) {
  Start({.context = 256, .sequences = 2}, 64);
  std::vector<EngineSnapshot> seen;
  sink_.hook = [&](const SequenceOutput&) { seen.push_back(engine_->Snapshot()); };
  SubmitTogether({Greedy(1, Prompt(1, 100), 40), Greedy(2, Prompt(2, 30), 50), Greedy(3, Prompt(3, 30), 50)});
  for (uint64_t id = 1; id <= 3; ++id) sink_.AwaitEnd(id);
  uint64_t both = 0;
  for (const EngineSnapshot& snapshot : seen) {
    EXPECT_LE(snapshot.active_prefill + snapshot.active_decode, 2u);
    EXPECT_LE(snapshot.kv_pages_free + snapshot.kv_pages_idle, snapshot.kv_pages_total);
    EXPECT_LE(snapshot.kv_pages_reserved, snapshot.kv_pages_free + snapshot.kv_pages_idle);
    EXPECT_TRUE(snapshot.healthy);
    if (snapshot.active_prefill + snapshot.active_decode == 2 && snapshot.waiting == 1) ++both;
  }
  EXPECT_GE(both, 40u);
  EXPECT_EQ(seen.back().tokens_prefilled, 160u);
  EXPECT_EQ(seen.back().tokens_decoded, 39u + 49u + 49u);
}

// Rows of nothing but NaN leave no trace in pages that others are given later.
TEST_F(EngineTest, PagesOfARowThatIsNotANumberHarmNobodyLater) {
  PoisonToken(5);
  Start({.context = 64, .sequences = 1}, 64);
  std::vector<int32_t> poisoned = Prompt(1, 60);
  poisoned[0] = 5;
  EXPECT_EQ(ReasonOf(Run(Greedy(1, poisoned, 3)).error), Reason::kInternal);
  EXPECT_THAT(Run(Greedy(2, Prompt(2, 20), 20)).ids, ElementsAreArray(Alone(Greedy(2, Prompt(2, 20), 20)).ids));
}

}  // namespace
}  // namespace bulkhead::engine
