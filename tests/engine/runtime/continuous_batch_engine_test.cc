#include "engine/runtime/continuous_batch_engine.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <ctime>

#include "base/sys.h"
#include "tests/engine/runtime/engine_fixture.h"

namespace bulkhead::engine {
namespace {

using testing::ElementsAreArray;

// The first run of `length` ASCII characters; random tokens make little else than broken characters.
std::string FirstAscii(const std::string& text, size_t length) {
  for (size_t start = 0; start + length <= text.size(); ++start) {
    const std::string run = text.substr(start, length);
    if (std::all_of(run.begin(), run.end(), [](unsigned char c) { return c < 0x80; })) return run;
  }
  return "";
}

TEST_F(EngineTest, ABatchGivesEachRequestWhatItWouldGetAlone) {
  Start({.context = 256, .sequences = 4});
  std::vector<GenerationRequest> requests;
  for (uint64_t id = 1; id <= 9; ++id) {
    requests.push_back(Sampled(id, Prompt(id, 3 + 11 * static_cast<uint32_t>(id)), 20));
  }
  for (const GenerationRequest& request : requests) ASSERT_TRUE(engine_->Submit(request).ok());
  for (const GenerationRequest& request : requests) {
    const Answer together = sink_.AwaitEnd(request.id);
    const Answer alone = Alone(request);
    EXPECT_THAT(together.ids, ElementsAreArray(alone.ids)) << "request " << request.id;
    EXPECT_EQ(together.text, alone.text);
    EXPECT_EQ(together.finish, FinishReason::kLength);
    EXPECT_EQ(together.started, 1);
    EXPECT_EQ(together.terminals, 1);
    EXPECT_FALSE(together.out_of_order);
  }
}

TEST_F(EngineTest, TheChunkingOfAPromptChangesNoToken) {
  const Answer expected = Alone(Sampled(1, Prompt(5, 150), 10));
  for (const uint32_t chunk : {1U, 7U, 64U, 256U}) {
    Start({.context = 256, .sequences = 1}, chunk);
    GenerationRequest request = Sampled(1, Prompt(5, 150), 10);
    request.id = 100 + chunk;
    EXPECT_THAT(Run(request).ids, ElementsAreArray(expected.ids)) << "chunks of " << chunk;
  }
}

TEST_F(EngineTest, ComputesNothingForATokenNobodyWillSee) {
  Start({.context = 256, .sequences = 1}, 64);
  const uint64_t layers = model_->model().config().layers;
  EXPECT_EQ(Run(Greedy(1, Prompt(1, 30), 5)).ids.size(), 5u);
  EXPECT_EQ(engine_->progress(), layers * (1 + 4)) << "one forward for the prompt, four for the tokens after the first";
}

TEST_F(EngineTest, EndsWithLengthWhereTheContextEnds) {
  Start({.context = 64, .sequences = 1});
  const Answer answer = Run(Greedy(1, Prompt(1, 60), 0));
  EXPECT_EQ(answer.finish, FinishReason::kLength);
  EXPECT_EQ(answer.ids.size(), 4u);
  EXPECT_EQ(answer.usage.prompt_tokens, 60u);
  EXPECT_EQ(answer.usage.completion_tokens, 4u);
}

TEST_F(EngineTest, RefusesAtOnceWhatCanNeverRun) {
  Start({.context = 64, .sequences = 1});
  EXPECT_EQ(ReasonOf(engine_->Submit(Greedy(1, Prompt(1, 64), 1))), Reason::kContextTooLarge);
  EXPECT_EQ(ReasonOf(engine_->Submit(Greedy(1, {}, 1))), Reason::kInvalidRequest);
  EXPECT_EQ(ReasonOf(engine_->Submit(Greedy(1, {400}, 1))), Reason::kInvalidRequest);
  EXPECT_EQ(ReasonOf(engine_->Submit(Greedy(1, {-1}, 1))), Reason::kInvalidRequest);
  GenerationRequest hot = Greedy(1, {1}, 1);
  hot.sampling.temperature = -1;
  EXPECT_EQ(ReasonOf(engine_->Submit(hot)), Reason::kInvalidRequest);
}

TEST_F(EngineTest, RefusesAnIdStillUnderWay) {
  Start();
  sink_.hook = [this](const SequenceOutput& output) {
    if (output.terminal()) return;
    EXPECT_EQ(ReasonOf(engine_->Submit(Greedy(output.id, Prompt(1, 5), 3))), Reason::kInvalidRequest);
  };
  Run(Greedy(1, Prompt(1, 5), 3));
  EXPECT_EQ(sink_.Now(1).terminals, 1);
}

TEST_F(EngineTest, CancelEndsARequestInItsPrefillAndLeavesTheOthersAsTheyWere) {
  const Answer expected = Alone(Sampled(2, Prompt(2, 20), 30));
  Start({.context = 256, .sequences = 4}, 1);
  ASSERT_TRUE(engine_->Submit(Greedy(1, Prompt(1, 250), 0)).ok());
  ASSERT_TRUE(engine_->Submit(Sampled(2, Prompt(2, 20), 30)).ok());
  sink_.Await(1, [](const Answer& answer) { return answer.started == 1; });
  engine_->Cancel(1);
  const Answer cancelled = sink_.AwaitEnd(1);
  EXPECT_EQ(cancelled.finish, FinishReason::kCancelled);
  EXPECT_TRUE(cancelled.ids.empty());
  EXPECT_THAT(sink_.AwaitEnd(2).ids, ElementsAreArray(expected.ids));
  engine_->Cancel(77);  // unknown: nothing
}

TEST_F(EngineTest, APausedRequestKeepsItsPagesAndGoesOnWhereItWas) {
  const Answer expected = Alone(Sampled(1, Prompt(1, 20), 100));
  Start();
  sink_.hook = [this](const SequenceOutput& output) {
    if (output.index == 10) engine_->Pause(1);
  };
  ASSERT_TRUE(engine_->Submit(Sampled(1, Prompt(1, 20), 100)).ok());
  sink_.Await(1, [](const Answer& answer) { return answer.ids.size() >= 11; });
  EXPECT_EQ(Run(Greedy(2, Prompt(2, 5), 30)).ids.size(), 30u) << "others run meanwhile";
  EXPECT_EQ(sink_.Now(1).ids.size(), 11u);
  const EngineSnapshot snapshot = engine_->Snapshot();
  EXPECT_EQ(snapshot.paused, 1u);
  EXPECT_LT(snapshot.kv_pages_free, snapshot.kv_pages_total);
  engine_->Unpause(1);
  EXPECT_THAT(sink_.AwaitEnd(1).ids, ElementsAreArray(expected.ids));
}

TEST_F(EngineTest, AResumedRequestGoesOnTokenForToken) {
  const GenerationRequest request = [] {
    GenerationRequest made = Sampled(1, Prompt(3, 30), 40);
    made.stop = {"never to be found"};
    return made;
  }();
  const Answer whole = Alone(request);
  ASSERT_EQ(whole.ids.size(), 40u);
  for (const size_t cut : {1UL, 17UL, 39UL, 40UL}) {
    GatheringSink sink;
    sink.ExpectFirstIndex(1, cut);
    const auto pool = kernels::ComputePool::Create({.threads = 1});
    const auto engine = ContinuousBatchEngine::Create({.model = model_,
                                                       .shape = {.context = 256, .sequences = 1},
                                                       .pool = pool->get(),
                                                       .kernel_tier = "",
                                                       .sink = &sink});
    GenerationRequest resumed = request;
    resumed.resume_ids.assign(whole.ids.begin(), whole.ids.begin() + static_cast<ptrdiff_t>(cut));
    ASSERT_TRUE((*engine)->Submit(resumed).ok());
    const Answer rest = sink.AwaitEnd(1);
    EXPECT_THAT(rest.ids, ElementsAreArray(whole.ids.begin() + static_cast<ptrdiff_t>(cut), whole.ids.end()));
    EXPECT_TRUE(whole.text.ends_with(rest.text)) << "cut at " << cut;
    EXPECT_EQ(rest.usage.prompt_tokens, 30u);
    EXPECT_EQ(rest.usage.completion_tokens, 40u);
    EXPECT_EQ(rest.usage.cached_tokens, 0u);
    EXPECT_EQ(rest.finish, FinishReason::kLength);
    EXPECT_FALSE(rest.out_of_order);
  }
}

TEST_F(EngineTest, AStopStringEndsTheTextBeforeIt) {
  const Answer whole = Alone(Sampled(1, Prompt(4, 10), 60));
  GenerationRequest request = Sampled(1, Prompt(4, 10), 60);
  request.stop = {FirstAscii(whole.text, 3)};
  ASSERT_EQ(request.stop[0].size(), 3u);
  Start();
  const Answer answer = Run(request);
  EXPECT_EQ(answer.finish, FinishReason::kStopString);
  EXPECT_EQ(answer.stop_string, request.stop[0]);
  EXPECT_EQ(answer.text, whole.text.substr(0, whole.text.find(request.stop[0])));
}

TEST_F(EngineTest, GivesLogProbabilitiesWhereAsked) {
  Start();
  GenerationRequest request = Greedy(1, Prompt(1, 5), 6);
  request.logprobs = true;
  const Answer answer = Run(request);
  EXPECT_EQ(answer.logprobs.size(), 6u);
  EXPECT_TRUE(Run(Greedy(2, Prompt(1, 5), 6)).logprobs.empty());
}

TEST_F(EngineTest, RefusesWhatTheQueueCannotHold) {
  Start({.context = 256, .sequences = 1});
  uint64_t id = 1;
  absl::Status status;
  while (id < 100 && (status = engine_->Submit(Greedy(id, Prompt(1, 200), 0))).ok()) ++id;
  EXPECT_EQ(ReasonOf(status), Reason::kQueueFull);
  EXPECT_GE(id, 17u);
  EXPECT_GE(engine_->Snapshot().waiting, 1u);
}

TEST_F(EngineTest, ShutdownAnswersEverybodyAndRefusesAfterwards) {
  Start({.context = 256, .sequences = 2});
  for (uint64_t id = 1; id <= 6; ++id) ASSERT_TRUE(engine_->Submit(Greedy(id, Prompt(1, 100), 0)).ok());
  engine_->Pause(1);
  engine_->Shutdown(Duration(0));
  for (uint64_t id = 1; id <= 6; ++id) {
    const Answer answer = sink_.Now(id);
    EXPECT_EQ(answer.terminals, 1) << "request " << id;
    EXPECT_TRUE(answer.finish == FinishReason::kLength || ReasonOf(answer.error) == Reason::kShuttingDown);
  }
  engine_->Shutdown(Duration(0));
  EXPECT_EQ(ReasonOf(engine_->Submit(Greedy(9, Prompt(1, 5), 1))), Reason::kShuttingDown);
}

TEST_F(EngineTest, ShutdownLetsWhatIsUnderWayFinishWithinItsDeadline) {
  Start();
  ASSERT_TRUE(engine_->Submit(Greedy(1, Prompt(1, 10), 20)).ok());
  engine_->Shutdown(std::chrono::seconds(60));
  EXPECT_EQ(sink_.Now(1).finish, FinishReason::kLength);
}

TEST_F(EngineTest, DestructionAnswersEverybody) {
  Start({.context = 256, .sequences = 1});
  for (uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(engine_->Submit(Greedy(id, Prompt(1, 100), 0)).ok());
  engine_.reset();
  for (uint64_t id = 1; id <= 3; ++id) EXPECT_EQ(sink_.Now(id).terminals, 1);
}

TEST_F(EngineTest, UsesNoProcessorWhileItHasNothingToDo) {
  Start();
  Run(Greedy(1, Prompt(1, 5), 5));
  const uint64_t steps = engine_->Snapshot().steps;
  const Duration before = sys::ClockNow(CLOCK_PROCESS_CPUTIME_ID);
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable().wait_for(lock, std::chrono::milliseconds(300));
  EXPECT_LT(sys::ClockNow(CLOCK_PROCESS_CPUTIME_ID) - before, std::chrono::milliseconds(20));
  EXPECT_EQ(engine_->Snapshot().steps, steps);
  EXPECT_EQ(engine_->phase(), EnginePhase::kIdle);
}

TEST_F(EngineTest, ARowThatIsNotANumberEndsItsOwnRequestAlone) {
  PoisonToken(5);  // Prompt() makes no id below 10
  Start({.context = 256, .sequences = 4}, 64);
  std::vector<int32_t> poisoned = Prompt(1, 20);
  poisoned.back() = 5;
  ASSERT_TRUE(engine_->Submit(Greedy(1, poisoned, 10)).ok());
  ASSERT_TRUE(engine_->Submit(Greedy(2, Prompt(2, 20), 1)).ok());
  EXPECT_EQ(ReasonOf(sink_.AwaitEnd(1).error), Reason::kInternal);
  const Answer answer = sink_.AwaitEnd(2);
  EXPECT_EQ(answer.finish, FinishReason::kLength);
  EXPECT_EQ(answer.ids.size(), 1u);
}

TEST_F(EngineTest, ThreadsMayChangeBetweenSteps) {
  const Answer expected = Alone(Sampled(1, Prompt(6, 40), 40));
  Start();
  sink_.hook = [this](const SequenceOutput& output) { engine_->SetThreads(1 + output.index % 2); };
  EXPECT_THAT(Run(Sampled(1, Prompt(6, 40), 40)).ids, ElementsAreArray(expected.ids));
}

TEST_F(EngineTest, RunsPostedClosuresBetweenSteps) {
  Start();
  std::mutex mutex;
  std::condition_variable ran;
  bool done = false;
  engine_->Post([&] {
    std::lock_guard lock(mutex);
    done = true;
    ran.notify_one();
  });
  std::unique_lock lock(mutex);
  EXPECT_TRUE(ran.wait_for(lock, std::chrono::seconds(30), [&] { return done; }));
}

TEST_F(EngineTest, CreateRefusesAnUnknownTier) {
  const auto pool = kernels::ComputePool::Create({.threads = 1});
  const auto engine = ContinuousBatchEngine::Create({.model = model_,
                                                     .shape = {.context = 64, .sequences = 1},
                                                     .pool = pool->get(),
                                                     .kernel_tier = "abacus",
                                                     .sink = &sink_});
  EXPECT_EQ(ReasonOf(engine.status()), Reason::kCpuUnsupported);
}

}  // namespace
}  // namespace bulkhead::engine
