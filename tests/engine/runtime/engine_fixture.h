// Test support: an engine on a small random model, and a sink that gathers what each request got.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/runtime/continuous_batch_engine.h"
#include "engine/runtime/loaded_model.h"
#include "kernels/compute_pool.h"
#include "tests/engine/runtime/sanitized.h"
#include "tests/engine/temporary_model.h"

namespace bulkhead::engine {

// Everything one request got.
struct Answer {
  int started = 0;
  std::string text;
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  FinishReason finish = FinishReason::kUnspecified;
  absl::Status error;
  std::string stop_string;
  GenerationUsage usage;
  int terminals = 0;
  bool out_of_order = false;  // an index that does not follow, or anything after the terminal
};

class GatheringSink final : public GenerationSink {
 public:
  // Called on the engine thread before each output is noted: whoever awaits the output finds this done.
  std::function<void(const SequenceOutput&)> hook;

  void OnStarted(uint64_t id, uint32_t prompt_tokens, uint32_t context) override;
  void OnStep(std::span<const SequenceOutput> outputs) override;

  // Waits (bounded) until the condition holds for the request's answer.
  Answer Await(uint64_t id, const std::function<bool(const Answer&)>& condition);
  Answer AwaitEnd(uint64_t id) {
    return Await(id, [](const Answer& answer) { return answer.terminals > 0; });
  }
  Answer Now(uint64_t id);
  // As if nothing had ever been heard of the request, or of any.
  void Forget(uint64_t id);
  void Clear();
  // The first index of a request that is resumed.
  void ExpectFirstIndex(uint64_t id, uint64_t index);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, Answer> answers_;
  std::map<uint64_t, uint64_t> next_index_;
};

// 64-bit digests of rows of logits, by request and number of tokens before the one chosen from them.
struct RowDigests {
  std::map<std::pair<uint64_t, uint32_t>, uint64_t> rows;
  bool contradicted = false;  // the same row came out twice, and not alike

  void Note(uint64_t id, uint32_t position, std::span<const float> row);
};

class EngineTest : public testing::Test {
 protected:
  static void SetUpTestSuite();
  static void TearDownTestSuite();
  void TearDown() override;

  // From now on the model is the same one with the embedding of `token` not a number.
  static void PoisonToken(int32_t token);
  // From now on the model is another architecture's.
  static void UseModel(const std::string& architecture);
  // What Start changes of the engine's options, and what the test does beyond it.
  std::function<void(ContinuousBatchEngine::Options&)> adjust_;
  void Start(MemoryShape shape = {.context = 256, .sequences = 4}, uint32_t fixed_chunk = 0);
  // `count` ids that differ with `seed`.
  static std::vector<int32_t> Prompt(uint32_t seed, uint32_t count);
  // Greedy, never ending by itself.
  static GenerationRequest Greedy(uint64_t id, std::vector<int32_t> prompt, uint32_t max_tokens);
  // With temperature and a seed that follows from the id.
  static GenerationRequest Sampled(uint64_t id, std::vector<int32_t> prompt, uint32_t max_tokens);
  // The answer of a request run alone on an engine of its own, without a prefix cache.
  static Answer Alone(GenerationRequest request);
  // Likewise on another tier, noting the digest of each row of logits by (request, position).
  static Answer Alone(GenerationRequest request, const std::string& tier, RowDigests& digests);
  Answer Run(GenerationRequest request);
  // All at once, between two steps, however slowly this thread runs.
  void SubmitTogether(const std::vector<GenerationRequest>& requests);
  // Waits until the engine is done with all that was posted before.
  void Settle();

  static std::shared_ptr<const LoadedModel> model_;
  static std::shared_ptr<const LoadedModel> healthy_model_;
  GatheringSink sink_;
  std::unique_ptr<kernels::ComputePool> pool_;
  std::unique_ptr<ContinuousBatchEngine> engine_;
};

}  // namespace bulkhead::engine
