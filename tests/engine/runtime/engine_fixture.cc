#include "tests/engine/runtime/engine_fixture.h"

#include <fcntl.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <future>

#include "base/fd.h"
#include "base/sys.h"

namespace bulkhead::engine {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);

tools::ModelSpec SmallSpec() {
  return {.architecture = "qwen3",
          .type = WeightType::kQ8_0,
          .layers = 2,
          .embedding = 64,
          .feed_forward = 96,
          .heads = 4,
          .kv_heads = 2,
          .head = 32,
          .vocabulary = 400};
}

}  // namespace

void GatheringSink::OnStarted(uint64_t id, uint32_t /*prompt_tokens*/, uint32_t /*context*/) {
  std::lock_guard lock(mutex_);
  ++answers_[id].started;
  changed_.notify_all();
}

void GatheringSink::OnStep(std::span<const SequenceOutput> outputs) {
  for (const SequenceOutput& output : outputs) {
    if (hook) hook(output);
    {
      std::lock_guard lock(mutex_);
      Answer& answer = answers_[output.id];
      uint64_t& next = next_index_[output.id];
      answer.out_of_order |= output.index != next || answer.terminals > 0;
      next += output.tokens.size();
      answer.text += output.text;
      for (const ProducedToken& token : output.tokens) {
        answer.ids.push_back(token.id);
        if (token.logprob) answer.logprobs.push_back(*token.logprob);
      }
      if (output.terminal()) {
        ++answer.terminals;
        answer.finish = output.finish;
        answer.error = output.error;
        answer.stop_string = output.stop_string;
        answer.usage = output.usage;
      }
      changed_.notify_all();
    }
  }
}

Answer GatheringSink::Await(uint64_t id, const std::function<bool(const Answer&)>& condition) {
  std::unique_lock lock(mutex_);
  EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] { return condition(answers_[id]); })) << "request " << id;
  return answers_[id];
}

Answer GatheringSink::Now(uint64_t id) {
  std::lock_guard lock(mutex_);
  return answers_[id];
}

void GatheringSink::Forget(uint64_t id) {
  std::lock_guard lock(mutex_);
  answers_.erase(id);
  next_index_.erase(id);
}

void GatheringSink::Clear() {
  std::lock_guard lock(mutex_);
  answers_.clear();
  next_index_.clear();
}

void GatheringSink::ExpectFirstIndex(uint64_t id, uint64_t index) {
  std::lock_guard lock(mutex_);
  next_index_[id] = index;
}

void RowDigests::Note(uint64_t id, uint32_t position, std::span<const float> row) {
  uint64_t hash = 14695981039346656037ULL;  // FNV-1a over 32-bit words
  for (const float value : row) {
    uint32_t word = 0;
    std::memcpy(&word, &value, sizeof word);
    hash = (hash ^ word) * 1099511628211ULL;
  }
  const auto [entry, added] = rows.try_emplace({id, position}, hash);
  contradicted |= !added && entry->second != hash;
}

std::shared_ptr<const LoadedModel> EngineTest::model_;

std::shared_ptr<const LoadedModel> EngineTest::healthy_model_;

void EngineTest::SetUpTestSuite() {
  const TemporaryModel file(SmallSpec());
  const UniqueFd fd(sys::Open(file.path().c_str(), O_RDONLY));
  auto model = LoadedModel::Load(fd.get());
  ASSERT_TRUE(model.ok()) << Message(model.status());
  model_ = healthy_model_ = *model;
}

void EngineTest::TearDownTestSuite() {
  model_.reset();
  healthy_model_.reset();
}

void EngineTest::TearDown() {
  engine_.reset();
  sink_.hook = nullptr;
  model_ = healthy_model_;
}

void EngineTest::PoisonToken(int32_t token) {
  const TensorInfo* embedding = healthy_model_->file().FindTensor("token_embd.weight");
  const uint64_t row = embedding->bytes.size() / embedding->dims[1];
  const uint64_t offset = healthy_model_->file().data_offset() + embedding->offset + row * static_cast<uint64_t>(token);
  const TemporaryModel file(SmallSpec());
  const std::string ones(row, '\xff');  // scales of all ones are not a number
  std::fstream writer(file.path(), std::ios::binary | std::ios::in | std::ios::out);
  writer.seekp(static_cast<std::streamoff>(offset));
  writer << ones << std::flush;
  ASSERT_TRUE(writer.good());
  const UniqueFd fd(sys::Open(file.path().c_str(), O_RDONLY));
  auto model = LoadedModel::Load(fd.get());
  ASSERT_TRUE(model.ok()) << Message(model.status());
  model_ = *model;
}

void EngineTest::UseModel(const std::string& architecture) {
  tools::ModelSpec spec = SmallSpec();
  spec.architecture = architecture;
  spec.attention_every = 2;
  spec.inner = 128;
  spec.state = 32;
  const TemporaryModel file(spec);
  const UniqueFd fd(sys::Open(file.path().c_str(), O_RDONLY));
  auto model = LoadedModel::Load(fd.get());
  ASSERT_TRUE(model.ok()) << Message(model.status());
  model_ = *model;
}

void EngineTest::Start(MemoryShape shape, uint32_t fixed_chunk) {
  engine_.reset();
  auto pool = kernels::ComputePool::Create({.threads = 2});
  ASSERT_TRUE(pool.ok());
  pool_ = std::move(*pool);
  ContinuousBatchEngine::Options options{.model = model_,
                                         .shape = shape,
                                         .pool = pool_.get(),
                                         .kernel_tier = "",
                                         .sink = &sink_,
                                         .max_waiting = 16,
                                         .fixed_prefill_chunk = fixed_chunk};
  if (adjust_) adjust_(options);
  auto engine = ContinuousBatchEngine::Create(std::move(options));
  ASSERT_TRUE(engine.ok()) << Message(engine.status());
  engine_ = std::move(*engine);
}

std::vector<int32_t> EngineTest::Prompt(uint32_t seed, uint32_t count) {
  std::vector<int32_t> ids;
  for (uint32_t i = 0; i < count; ++i) {
    seed = seed * 1664525 + 1013904223;
    ids.push_back(static_cast<int32_t>(10 + (seed >> 8) % 300));
  }
  return ids;
}

GenerationRequest EngineTest::Greedy(uint64_t id, std::vector<int32_t> prompt, uint32_t max_tokens) {
  GenerationRequest request;
  request.id = id;
  request.prompt_ids = std::move(prompt);
  request.sampling.temperature = 0;
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  return request;
}

GenerationRequest EngineTest::Sampled(uint64_t id, std::vector<int32_t> prompt, uint32_t max_tokens) {
  GenerationRequest request = Greedy(id, std::move(prompt), max_tokens);
  request.sampling.temperature = 1.5F;
  request.sampling.top_k = 100;
  request.sampling.repeat_penalty = 1.1F;
  request.seed = 1000 + id;
  return request;
}

Answer EngineTest::Alone(GenerationRequest request) {
  RowDigests unread;
  return Alone(std::move(request), "", unread);
}

Answer EngineTest::Alone(GenerationRequest request, const std::string& tier, RowDigests& digests) {
  GatheringSink sink;
  const auto pool = kernels::ComputePool::Create({.threads = 1});
  const auto engine = ContinuousBatchEngine::Create({.model = model_,
                                                     .shape = {.context = 256, .sequences = 1},
                                                     .pool = pool->get(),
                                                     .kernel_tier = tier,
                                                     .sink = &sink,
                                                     .prefix_cache = false,
                                                     .observe_logits = [&](auto... row) { digests.Note(row...); }});
  const uint64_t id = request.id;
  EXPECT_TRUE((*engine)->Submit(std::move(request)).ok());
  return sink.AwaitEnd(id);
}

Answer EngineTest::Run(GenerationRequest request) {
  const uint64_t id = request.id;
  const absl::Status status = engine_->Submit(std::move(request));
  EXPECT_TRUE(status.ok()) << Message(status);
  return sink_.AwaitEnd(id);
}

void EngineTest::SubmitTogether(const std::vector<GenerationRequest>& requests) {
  engine_->Post([this, requests] {
    for (const GenerationRequest& request : requests) {
      const absl::Status status = engine_->Submit(request);
      EXPECT_TRUE(status.ok()) << Message(status);
    }
  });
  Settle();
}

void EngineTest::Settle() {
  const auto done = std::make_shared<std::promise<void>>();
  engine_->Post([done] { done->set_value(); });
  EXPECT_EQ(done->get_future().wait_for(kPatience), std::future_status::ready);
}

}  // namespace bulkhead::engine
