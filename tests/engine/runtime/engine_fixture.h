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
  // Called on the engine thread after each output has been noted.
  std::function<void(const SequenceOutput&)> hook;

  void OnStarted(uint64_t id, uint32_t prompt_tokens, uint32_t context) override;
  void OnStep(std::span<const SequenceOutput> outputs) override;

  // Waits (bounded) until the condition holds for the request's answer.
  Answer Await(uint64_t id, const std::function<bool(const Answer&)>& condition);
  Answer AwaitEnd(uint64_t id) {
    return Await(id, [](const Answer& answer) { return answer.terminals > 0; });
  }
  Answer Now(uint64_t id);
  // The first index of a request that is resumed.
  void ExpectFirstIndex(uint64_t id, uint64_t index);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, Answer> answers_;
  std::map<uint64_t, uint64_t> next_index_;
};

class EngineTest : public testing::Test {
 protected:
  static void SetUpTestSuite();
  static void TearDownTestSuite();
  void TearDown() override;

  // From now on the model is the same one with the embedding of `token` not a number.
  static void PoisonToken(int32_t token);
  void Start(MemoryShape shape = {.context = 256, .sequences = 4}, uint32_t fixed_chunk = 0);
  // `count` ids that differ with `seed`.
  static std::vector<int32_t> Prompt(uint32_t seed, uint32_t count);
  // Greedy, never ending by itself.
  static GenerationRequest Greedy(uint64_t id, std::vector<int32_t> prompt, uint32_t max_tokens);
  // With temperature and a seed that follows from the id.
  static GenerationRequest Sampled(uint64_t id, std::vector<int32_t> prompt, uint32_t max_tokens);
  // The answer of a request run alone on an engine of its own.
  static Answer Alone(GenerationRequest request);
  Answer Run(GenerationRequest request);

  static std::shared_ptr<const LoadedModel> model_;
  static std::shared_ptr<const LoadedModel> healthy_model_;
  GatheringSink sink_;
  std::unique_ptr<kernels::ComputePool> pool_;
  std::unique_ptr<ContinuousBatchEngine> engine_;
};

}  // namespace bulkhead::engine
