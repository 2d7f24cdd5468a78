// One generation by the engine library alone, the oracle of the end-to-end tests.
// Usage: e2e_in_process MODEL.gguf PROMPT TOKENS TEMPERATURE SEED [ignore-eos]; TOKENS 0 prints the prompt's ids only.
#include <fcntl.h>
#include <fmt/format.h>

#include <array>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/fd.h"
#include "base/status.h"
#include "base/sys.h"
#include "engine/runtime/continuous_batch_engine.h"
#include "engine/runtime/loaded_model.h"
#include "engine/tokenizer/tokenizer.h"
#include "kernels/compute_pool.h"

namespace bulkhead {
namespace {

class Collector final : public engine::GenerationSink {
 public:
  void OnStarted(uint64_t, uint32_t, uint32_t) override {}
  void OnStep(std::span<const engine::SequenceOutput> outputs) override {
    const std::lock_guard lock(mutex_);
    for (const engine::SequenceOutput& output : outputs) {
      text_ += output.text;
      for (const engine::ProducedToken& token : output.tokens) ids_.push_back(token.id);
      if (output.terminal()) end_ = output;
    }
    changed_.notify_all();
  }

  nlohmann::json Wait() {
    constexpr std::array kNames = {"UNSPECIFIED", "STOP", "LENGTH", "STOP_STRING", "CANCELLED"};
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return end_.has_value(); });
    return {{"text", text_},
            {"ids", ids_},
            {"finish_reason", kNames.at(static_cast<size_t>(end_->finish))},
            {"error", Message(end_->error)}};
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string text_;
  std::vector<int32_t> ids_;
  std::optional<engine::SequenceOutput> end_;
};

engine::GenerationRequest RequestOf(char** arguments, std::vector<int32_t> prompt_ids, bool ignore_eos) {
  engine::GenerationRequest request;
  request.id = 1;
  request.prompt_ids = std::move(prompt_ids);
  request.max_tokens = static_cast<uint32_t>(std::strtoul(arguments[3], nullptr, 10));
  request.sampling.temperature = std::strtof(arguments[4], nullptr);
  request.seed = std::strtoull(arguments[5], nullptr, 10);
  request.ignore_eos = ignore_eos;
  return request;
}

absl::StatusOr<nlohmann::json> Generate(int count, char** arguments) {
  const UniqueFd file(sys::Open(arguments[1], O_RDONLY));
  if (!file.valid()) return ErrnoError(ENOENT, arguments[1]);
  ASSIGN_OR_RETURN(const auto model, engine::LoadedModel::Load(file.get()));
  const auto ids = model->tokenizer().Encode(arguments[2], {.add_special = true, .parse_special = true});
  const bool ignore_eos = count > 6 && std::string_view(arguments[6]) == "ignore-eos";
  engine::GenerationRequest request = RequestOf(arguments, ids, ignore_eos);
  if (request.max_tokens == 0) return nlohmann::json{{"prompt_ids", ids}};
  ASSIGN_OR_RETURN(const auto pool, kernels::ComputePool::Create({}));
  Collector collector;
  engine::ContinuousBatchEngine::Options options;
  options.model = model;
  options.shape.context = static_cast<uint32_t>(ids.size()) + request.max_tokens + 1;
  options.shape.sequences = 1;
  options.pool = pool.get();
  options.sink = &collector;
  ASSIGN_OR_RETURN(const auto running, engine::ContinuousBatchEngine::Create(std::move(options)));
  RETURN_IF_ERROR(running->Submit(std::move(request)));
  nlohmann::json result = collector.Wait();
  result["prompt_tokens"] = ids.size();
  return result;
}

}  // namespace
}  // namespace bulkhead

int main(int argc, char** argv) {
  if (argc < 6) {
    fmt::print(stderr, "usage: e2e_in_process MODEL.gguf PROMPT TOKENS TEMPERATURE SEED [ignore-eos]\n");
    return 2;
  }
  const auto result = bulkhead::Generate(argc, argv);
  if (!result.ok()) {
    fmt::print(stderr, "{}\n", bulkhead::Message(result.status()));
    return 1;
  }
  fmt::print("{}\n", result->dump());
  return 0;
}
