// Models that carry a state: it moves on only with whole forwards, goes back when asked, and is charged.
#include <fcntl.h>
#include <gmock/gmock.h>

#include "base/fd.h"
#include "base/sys.h"
#include "kernels/dispatch.h"
#include "tests/engine/model_runner.h"
#include "tests/engine/runtime/engine_fixture.h"

namespace bulkhead::engine {
namespace {

using testing::ElementsAreArray;

tools::ModelSpec Spec(const std::string& architecture) {
  return {.architecture = architecture,
          .type = WeightType::kQ8_0,
          .layers = 2,
          .embedding = 64,
          .feed_forward = 96,
          .heads = 4,
          .kv_heads = 2,
          .head = 32,
          .attention_every = 2,
          .inner = 128,
          .state = 32,
          .vocabulary = 400};
}

std::vector<int32_t> Tokens(uint32_t seed, uint32_t count) {
  std::vector<int32_t> ids;
  for (uint32_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(10 + (seed * 31 + i * 7) % 300));
  return ids;
}

// One model whose forwards the test puts together itself.
class RecurrentState : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    file_ = std::make_unique<TemporaryModel>(Spec(GetParam()));
    ModelRunner::Options options;
    options.shape = {.context = 128, .sequences = 2, .state_snapshots = 1};
    auto runner = ModelRunner::Open(file_->path(), options);
    ASSERT_TRUE(runner.ok()) << Message(runner.status());
    runner_ = std::move(*runner);
    compute_ = std::make_unique<kernels::Compute>(*kernels::DefaultTier().table, runner_->pool());
    slot_ = runner_->NewSequence();
    ASSERT_TRUE(runner_->runtime().Grow(slot_, 128).ok());
  }

  StatePool& states() { return runner_->runtime().states(); }

  // The logits after `tokens`, which stand at `position` and on; empty where the forward failed.
  std::vector<float> Feed(uint32_t slot, std::span<const int32_t> tokens, uint32_t position,
                          const StopCheck& stop = {}) {
    std::vector<Row> rows;
    for (const int32_t token : tokens) rows.push_back({slot, token, position++, false});
    rows.back().wants_logits = true;
    PlanRuntime& runtime = runner_->runtime();
    last_ = runner_->model().Forward(rows,
                                     {runtime.kv(), runtime.states(), runtime.workspace(), *compute_, stop, progress_});
    if (!last_.ok()) return {};
    const auto logits = runtime.workspace().Logits(0);
    return {logits.begin(), logits.end()};
  }

  std::unique_ptr<TemporaryModel> file_;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<kernels::Compute> compute_;
  std::atomic<uint64_t> progress_{0};
  uint32_t slot_ = 0;
  absl::Status last_;
};

TEST_P(RecurrentState, AForwardGivenUpLeavesItAsItWas) {
  const auto prompt = Tokens(1, 40);
  Feed(slot_, std::span(prompt).first(20), 0);
  int asked = 0;
  Feed(slot_, std::span(prompt).subspan(20), 20, [&asked] { return ++asked == 2; });
  EXPECT_EQ(ReasonOf(last_), Reason::kCancelled);
  EXPECT_EQ(states().Position(slot_), 20u);
  const auto again = Feed(slot_, std::span(prompt).subspan(20), 20);
  states().Reset(slot_);
  EXPECT_EQ(again, Feed(slot_, prompt, 0));
}

TEST_P(RecurrentState, RefusedDraftsAreUndone) {
  const auto prompt = Tokens(2, 30);
  Feed(slot_, std::span(prompt).first(25), 0);
  Feed(slot_, Tokens(9, 4), 25);
  EXPECT_TRUE(states().Undo(slot_));
  EXPECT_FALSE(states().Undo(slot_)) << "only the last forward";
  const auto after = Feed(slot_, std::span(prompt).subspan(25), 25);
  states().Reset(slot_);
  EXPECT_EQ(after, Feed(slot_, prompt, 0));
}

TEST_P(RecurrentState, ASnapshotOutlivesWhatFollows) {
  const auto prompt = Tokens(3, 30);
  Feed(slot_, std::span(prompt).first(25), 0);
  const auto snapshot = states().Take(slot_);
  ASSERT_TRUE(snapshot.has_value());
  EXPECT_FALSE(states().Take(slot_).has_value()) << "the pool was made with one";
  Feed(slot_, Tokens(8, 3), 25);
  Feed(slot_, Tokens(7, 3), 28);
  states().Restore(slot_, *snapshot);
  EXPECT_EQ(states().Position(slot_), 25u);
  const auto after = Feed(slot_, std::span(prompt).subspan(25), 25);
  states().Reset(slot_);
  EXPECT_EQ(after, Feed(slot_, prompt, 0));
  states().Drop(*snapshot);
  EXPECT_EQ(states().free_snapshots(), 1u);
}

TEST_P(RecurrentState, RowsThatDoNotFollowItAreRefused) {
  Feed(slot_, Tokens(1, 5), 0);
  Feed(slot_, Tokens(1, 5), 6);
  EXPECT_EQ(ReasonOf(last_), Reason::kInternal);
  Feed(slot_, Tokens(1, 5), 4);
  EXPECT_EQ(ReasonOf(last_), Reason::kInternal);
}

TEST_P(RecurrentState, ANewSequenceBeginsWithNone) {
  const auto prompt = Tokens(5, 12);
  const auto first = Feed(slot_, prompt, 0);
  runner_->EndSequence(slot_);
  slot_ = runner_->NewSequence();
  ASSERT_TRUE(runner_->runtime().Grow(slot_, 128).ok());
  EXPECT_EQ(first, Feed(slot_, prompt, 0));
}

TEST_P(RecurrentState, IsMappedAndChargedForEachSequence) {
  const ModelConfig& config = runner_->model().config();
  const uint64_t state = config.state_floats() * sizeof(float);
  EXPECT_GT(state, 0u);
  EXPECT_EQ(states().bytes(), 5 * state) << "two for each of two sequences, and a snapshot";
  EXPECT_EQ(BytesPerSequence(config), LogitRowBytes(config) + (2 + kStateSnapshotsPerSequence) * state);
  const MemoryShape shape{.context = 128, .sequences = 2, .state_snapshots = 1};
  const auto estimate = EstimateMemory(config, shape);
  ASSERT_TRUE(estimate.ok());
  EXPECT_EQ(runner_->runtime().private_bytes(), estimate->kv_bytes + estimate->sequence_bytes + estimate->arena_bytes);
  const uint64_t attending = config.attention_layers();
  EXPECT_EQ(attending, std::string(GetParam()) == "mamba2" ? 0u : 1u);
  EXPECT_EQ(KvBytesPerToken(config, KvType::kF16), attending * 2 * 32 * 2 * 2) << "only where layers attend";
}

std::shared_ptr<const LoadedModel> LoadHybrid(const std::string& architecture) {
  const TemporaryModel file(Spec(architecture));
  const UniqueFd fd(sys::Open(file.path().c_str(), O_RDONLY));
  auto model = LoadedModel::Load(fd.get());
  EXPECT_TRUE(model.ok()) << Message(model.status());
  return model.ok() ? *model : nullptr;
}

GenerationRequest Sampled(uint64_t id, uint32_t prompt, uint32_t max_tokens) {
  GenerationRequest request;
  request.id = id;
  request.prompt_ids = Tokens(static_cast<uint32_t>(id), prompt);
  request.sampling.temperature = 1.5F;
  request.seed = 1000 + id;
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  return request;
}

// Requests 1 to 4 together while a fifth, whose prompt is long, is cancelled again and again; or 1 to 4 one by one.
std::vector<std::vector<int32_t>> RunFour(const std::shared_ptr<const LoadedModel>& model, bool together,
                                          uint32_t chunk) {
  GatheringSink sink;
  const auto pool = kernels::ComputePool::Create({.threads = 2});
  const auto engine = ContinuousBatchEngine::Create({.model = model,
                                                     .shape = {.context = 256, .sequences = 5},
                                                     .pool = pool->get(),
                                                     .kernel_tier = "",
                                                     .sink = &sink,
                                                     .fixed_prefill_chunk = chunk});
  EXPECT_TRUE(engine.ok()) << Message(engine.status());
  std::vector<std::vector<int32_t>> ids;
  for (uint64_t id = 1; id <= 4; ++id) {
    EXPECT_TRUE((*engine)->Submit(Sampled(id, 10 + 20 * static_cast<uint32_t>(id), 16)).ok());
    if (!together) ids.push_back(sink.AwaitEnd(id).ids);
  }
  for (uint64_t id = 100; together && id < 104; ++id) {
    EXPECT_TRUE((*engine)->Submit(Sampled(id, 200, 8)).ok());
    sink.Await(id, [](const Answer& answer) { return answer.started > 0 || answer.terminals > 0; });
    (*engine)->Cancel(id);
  }
  for (uint64_t id = 1; together && id <= 4; ++id) ids.push_back(sink.AwaitEnd(id).ids);
  return ids;
}

TEST_P(RecurrentState, ABatchWithCancelledNeighboursChangesNoToken) {
  const auto model = LoadHybrid(GetParam());
  ASSERT_NE(model, nullptr);
  const auto alone = RunFour(model, false, 0);
  EXPECT_EQ(alone.size(), 4u);
  EXPECT_EQ(alone[0].size(), 16u);
  EXPECT_THAT(RunFour(model, true, 0), ElementsAreArray(alone));
  EXPECT_THAT(RunFour(model, true, 17), ElementsAreArray(alone)) << "in chunks of 17";
}

INSTANTIATE_TEST_SUITE_P(Families, RecurrentState,
                         testing::Values("mamba2", "granitehybrid", "lfm2", "qwen35", "qwen3next"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace bulkhead::engine
