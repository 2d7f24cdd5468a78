// The prefix cache through the engine: what is saved, and that no row of logits can tell.
#include <gmock/gmock.h>

#include <random>

#include "tests/engine/model_runner.h"
#include "tests/engine/runtime/engine_fixture.h"

namespace bulkhead::engine {
namespace {

using testing::ElementsAreArray;
using testing::IsSubsetOf;

std::vector<int32_t> Joined(std::vector<int32_t> first, const std::vector<int32_t>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

constexpr MemoryShape kRoomy{.context = 256, .sequences = 8, .state_snapshots = 8};

class PrefixSharing : public EngineTest, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    if (std::string(GetParam()) != "qwen3") UseModel(GetParam());
    adjust_ = [this](ContinuousBatchEngine::Options& options) {
      options.observe_logits = [this](auto... row) { seen_.Note(row...); };
    };
  }
  void TearDown() override {
    engine_.reset();
    EngineTest::TearDown();
  }

  [[nodiscard]] bool attends_only() const { return model_->model().config().state_floats() == 0; }

  // Each row that the engine computed for the request is the one that a cold engine computes.
  void ExpectColdRows(const GenerationRequest& request, const Answer& answer) {
    RowDigests cold;
    const Answer alone = Alone(request, "", cold);
    EXPECT_THAT(answer.ids, ElementsAreArray(alone.ids)) << "request " << request.id;
    EXPECT_EQ(answer.text, alone.text);
    for (const auto& [row, digest] : cold.rows) {
      const auto found = seen_.rows.find(row);
      ASSERT_NE(found, seen_.rows.end()) << "request " << row.first << " at " << row.second;
      EXPECT_EQ(found->second, digest) << "request " << row.first << " at " << row.second;
    }
  }

  RowDigests seen_;
};

TEST_P(PrefixSharing, APromptSeenBeforeIsNotComputedAgain) {
  Start(kRoomy);
  const GenerationRequest first = Sampled(1, Prompt(1, 150), 12);
  GenerationRequest second = Sampled(2, Prompt(1, 150), 12);
  ExpectColdRows(first, Run(first));
  const uint64_t before = engine_->Snapshot().tokens_prefilled;
  const Answer warm = Run(second);
  ExpectColdRows(second, warm);
  // With a state, from the last whole page on.
  const uint32_t expected = attends_only() ? 149 : 128;
  EXPECT_EQ(warm.usage.cached_tokens, expected);
  EXPECT_EQ(warm.usage.prompt_tokens, 150u);
  const EngineSnapshot snapshot = engine_->Snapshot();
  EXPECT_EQ(snapshot.tokens_prefilled - before, 150 - expected);
  EXPECT_EQ(snapshot.cache.hits, 1u);
  EXPECT_EQ(snapshot.cache.misses, 1u);
  EXPECT_EQ(snapshot.cache.saved_tokens, expected);
  EXPECT_GT(snapshot.kv_pages_idle, 0u);
}

TEST_P(PrefixSharing, ASecondTurnComputesOnlyItsNewTokens) {
  Start(kRoomy);
  const Answer answer = Run(Sampled(1, Prompt(1, 90), 20));
  const GenerationRequest second = Sampled(2, Joined(Joined(Prompt(1, 90), answer.ids), Prompt(7, 30)), 10);
  const uint64_t before = engine_->Snapshot().tokens_prefilled;
  const Answer reply = Run(second);
  ExpectColdRows(second, reply);
  EXPECT_EQ(reply.usage.cached_tokens, 90u + 19u) << "the last token of an answer is never computed";
  EXPECT_EQ(engine_->Snapshot().tokens_prefilled - before, 1u + 30u);
  const GenerationRequest third = Sampled(3, Joined(Joined(second.prompt_ids, reply.ids), Prompt(8, 5)), 10);
  const Answer last = Run(third);
  ExpectColdRows(third, last);
  EXPECT_EQ(last.usage.cached_tokens, 140u + 9u);
}

TEST_P(PrefixSharing, EightAtOnceComputeTheirCommonBeginningOnce) {
  constexpr uint32_t kCommon = 3 * kPagePositions;
  for (const uint32_t chunk : kSanitized ? std::vector{20U} : std::vector{0U, 20U, 256U}) {
    Start(kRoomy, chunk);
    seen_ = {};
    std::vector<GenerationRequest> requests;
    for (uint64_t id = 1; id <= 8; ++id) {
      requests.push_back(Sampled(id, Joined(Prompt(1, kCommon), Prompt(100 + id, 20)), 8));
    }
    SubmitTogether(requests);
    uint32_t cached = 0;
    for (const GenerationRequest& request : requests) {
      const Answer answer = sink_.AwaitEnd(request.id);
      if (request.id % 4 == 1) ExpectColdRows(request, answer);
      cached += answer.usage.cached_tokens;
      sink_.Forget(request.id);
    }
    EXPECT_EQ(engine_->Snapshot().tokens_prefilled, kCommon + 8 * 20) << "chunks of " << chunk;
    EXPECT_EQ(cached, 7 * kCommon);
    EXPECT_FALSE(seen_.contradicted);
  }
}

TEST_P(PrefixSharing, ALeaderThatIsCancelledOrPausedHoldsNobodyUp) {
  Start(kRoomy, 16);
  std::vector<GenerationRequest> requests;
  for (uint64_t id = 1; id <= 4; ++id) {
    requests.push_back(Sampled(id, Joined(Prompt(1, 150), Prompt(100 + id, 20)), 8));
    ASSERT_TRUE(engine_->Submit(requests.back()).ok());
  }
  sink_.Await(2, [](const Answer& answer) { return answer.started > 0; });
  engine_->Cancel(1);
  engine_->Pause(2);
  ExpectColdRows(requests[2], sink_.AwaitEnd(3));
  ExpectColdRows(requests[3], sink_.AwaitEnd(4));
  engine_->Unpause(2);
  ExpectColdRows(requests[1], sink_.AwaitEnd(2));
}

TEST_P(PrefixSharing, TenantsAndAdaptersShareNothing) {
  Start(kRoomy);
  const GenerationRequest mine = Sampled(1, Prompt(1, 150), 5);
  Run(mine);
  GenerationRequest theirs = Sampled(2, Prompt(1, 150), 5);
  theirs.tenant = 1001;
  EXPECT_EQ(Run(theirs).usage.cached_tokens, 0u);
  GenerationRequest adapted = Sampled(3, Prompt(1, 150), 5);
  adapted.adapter = "poet";
  EXPECT_EQ(Run(adapted).usage.cached_tokens, 0u);
  GenerationRequest again = theirs;
  again.id = 4;
  EXPECT_GT(Run(again).usage.cached_tokens, 100u);
}

TEST_P(PrefixSharing, AResumedRequestCountsNothingThatIsNotPromptAsCached) {
  Start(kRoomy);
  const GenerationRequest request = Sampled(1, Prompt(1, 70), 60);
  const Answer whole = Run(request);
  GenerationRequest resumed = request;
  resumed.id = 2;
  resumed.seed = request.seed;
  resumed.resume_ids.assign(whole.ids.begin(), whole.ids.begin() + 40);
  sink_.ExpectFirstIndex(2, 40);
  const Answer rest = Run(resumed);
  EXPECT_THAT(rest.ids, ElementsAreArray(whole.ids.begin() + 40, whole.ids.end()));
  EXPECT_LE(rest.usage.cached_tokens, 70u);
  EXPECT_EQ(rest.usage.completion_tokens, 60u);
}

// Requests that begin alike, come and go, with too few pages and slots for all, paused and cancelled now and then, in
// chunks of any size: whatever row of logits comes out is the one that a cold engine computes, on every tier.
TEST_P(PrefixSharing, NoRowOfLogitsDependsOnWhatElseRunsOrRan) {
  std::mt19937 random(20261201);
  std::vector<GenerationRequest> requests;
  for (uint64_t id = 1; id <= (kSanitized ? 4 : 20); ++id) {
    auto prompt = Joined(Prompt(random() % 3, 30 + 60 * (random() % 3)), Prompt(50 + random() % 3, 1 + random() % 40));
    requests.push_back(random() % 2 == 0 ? Sampled(id, std::move(prompt), 5 + random() % 40)
                                         : Greedy(id, std::move(prompt), 5 + random() % 40));
    requests.back().priority = static_cast<Priority>(random() % 3);
    requests.back().tenant = random() % 5 == 0 ? 1 : 0;
  }
  RowDigests cold;
  for (const GenerationRequest& request : requests) Alone(request, "", cold);
  for (const std::string& tier : kSanitized ? std::vector<std::string>{""} : RunnableTierNames()) {
    seen_ = {};
    sink_.Clear();
    const auto sequences = static_cast<uint32_t>(2 + random() % 15);
    adjust_ = [&](ContinuousBatchEngine::Options& options) {
      options.kernel_tier = tier;
      options.max_waiting = 100;
      options.observe_logits = [this](auto... row) { seen_.Note(row...); };
    };
    Start({.context = 256,
           .sequences = sequences,
           .kv_tokens = 6 * kPagePositions,
           .state_snapshots = static_cast<uint32_t>(1 + random() % 4)},
          static_cast<uint32_t>(random() % 3 * 33));
    sink_.hook = [this, hooked = std::mt19937(random())](const SequenceOutput& output) mutable {
      if (output.terminal()) return;
      if (hooked() % 16 == 0) {
        engine_->Pause(output.id);
        engine_->Post([this, id = output.id] { engine_->Unpause(id); });
      }
      if (hooked() % 200 == 0) engine_->Cancel(output.id);
    };
    SubmitTogether(requests);
    for (const GenerationRequest& request : requests) EXPECT_TRUE(sink_.AwaitEnd(request.id).error.ok());
    engine_->Shutdown(Duration(0));
    EXPECT_FALSE(seen_.contradicted) << tier;
    EXPECT_GT(seen_.rows.size(), cold.rows.size() / 2);
    EXPECT_THAT(seen_.rows, IsSubsetOf(cold.rows)) << tier;
    EXPECT_GT(engine_->Snapshot().cache.saved_tokens, 0u);
    EXPECT_TRUE(engine_->Health().last_error.ok()) << Message(engine_->Health().last_error);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, PrefixSharing,
                         testing::ValuesIn(kSanitized ? std::vector{"granitehybrid"}
                                                      : std::vector{"qwen3", "mamba2", "granitehybrid", "lfm2",
                                                                    "qwen35", "qwen3next"}),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(EngineTest, AHybridShortOfPagesSlotsAndStatesNeverDeadlocks) {
  UseModel("granitehybrid");
  std::vector<GenerationRequest> requests;
  std::map<uint64_t, std::vector<int32_t>> alone;
  for (uint64_t id = 1; id <= (kSanitized ? 3 : 12); ++id) {
    requests.push_back(Sampled(id, Joined(Prompt(id % 2, 70), Prompt(id, 10)), 52));
    alone[id] = Alone(requests.back()).ids;
  }
  for (const uint32_t snapshots : kSanitized ? std::vector{1U} : std::vector{0U, 1U, 3U}) {
    sink_.Clear();
    Start({.context = 256, .sequences = 5, .kv_tokens = 4 * kPagePositions, .state_snapshots = snapshots});
    SubmitTogether(requests);
    for (const GenerationRequest& request : requests) {
      EXPECT_THAT(sink_.AwaitEnd(request.id).ids, ElementsAreArray(alone[request.id]));
    }
    EXPECT_GE(engine_->Snapshot().preemptions, 1u);
  }
}

TEST_F(EngineTest, WithoutAPrefixCacheNothingIsKept) {
  adjust_ = [](ContinuousBatchEngine::Options& options) { options.prefix_cache = false; };
  Start();
  Run(Greedy(1, Prompt(1, 150), 5));
  EXPECT_EQ(Run(Greedy(2, Prompt(1, 150), 5)).usage.cached_tokens, 0u);
  const EngineSnapshot snapshot = engine_->Snapshot();
  EXPECT_EQ(snapshot.kv_pages_free, snapshot.kv_pages_total);
  EXPECT_EQ(snapshot.cache.misses, 0u);
}

}  // namespace
}  // namespace bulkhead::engine
