#include "bench/engine/engine_runs.h"

#include <fcntl.h>

#include <algorithm>
#include <vector>

#include "base/fd.h"
#include "base/sys.h"
#include "bench/engine/stopwatch.h"
#include "kernels/dispatch.h"

namespace bulkhead::bench {
namespace {

constexpr uint32_t kContext = 1024;
constexpr uint32_t kDecodePrompt = 16;

int32_t RandomId(uint32_t index, uint32_t vocabulary) {
  return static_cast<int32_t>((uint64_t{index} * 2654435761U + 12345) % vocabulary);
}

}  // namespace

absl::StatusOr<std::unique_ptr<EngineRuns>> EngineRuns::Open(const std::string& path, uint32_t threads,
                                                             uint32_t streams) {
  auto runs = std::unique_ptr<EngineRuns>(new EngineRuns);
  const UniqueFd fd(sys::Open(path.c_str(), O_RDONLY));
  if (!fd.valid()) return Error(Reason::kModelNotFound, path);
  ASSIGN_OR_RETURN(runs->loaded_, engine::LoadedModel::Load(fd.get()));
  const engine::ModelConfig& config = runs->model().config();
  ASSIGN_OR_RETURN(runs->pool_,
                   kernels::ComputePool::Create({.threads = threads, .scratch_bytes = engine::ScratchBytes(config)}));
  ASSIGN_OR_RETURN(runs->runtime_,
                   engine::PlanRuntime::Create(config, {.context = kContext, .sequences = std::max(streams, 1U)}));
  runs->compute_ = std::make_unique<kernels::Compute>(*kernels::DefaultTier().table, *runs->pool_);
  return runs;
}

absl::Status EngineRuns::Forward(std::span<const engine::Row> rows) {
  const engine::StopCheck never;
  return model().Forward(rows,
                         {runtime_->kv(), runtime_->states(), runtime_->workspace(), *compute_, never, progress_});
}

absl::StatusOr<double> EngineRuns::Prefill(uint32_t tokens) {
  const uint32_t slot = runtime_->Admit(kContext).slot;
  RETURN_IF_ERROR(runtime_->Grow(slot, tokens));
  const auto start = SteadyClock::now();
  std::vector<engine::Row> rows;
  for (uint32_t position = 0; position < tokens; ++position) {
    rows.push_back({slot, RandomId(position, model().config().vocabulary), position, position + 1 == tokens});
    if (rows.size() < engine::kForwardRows && position + 1 < tokens) continue;
    RETURN_IF_ERROR(Forward(rows));
    rows.clear();
  }
  const double seconds = SecondsSince(start);
  runtime_->Release(slot);
  return tokens / seconds;
}

absl::StatusOr<double> EngineRuns::Decode(uint32_t tokens, uint32_t streams) {
  std::vector<uint32_t> slots;
  for (uint32_t stream = 0; stream < streams; ++stream) {
    slots.push_back(runtime_->Admit(kContext).slot);
    RETURN_IF_ERROR(runtime_->Grow(slots.back(), kDecodePrompt + tokens));
    std::vector<engine::Row> prompt;
    for (uint32_t position = 0; position < kDecodePrompt; ++position) {
      prompt.push_back({slots.back(), RandomId(position + 77 * stream, model().config().vocabulary), position, false});
    }
    RETURN_IF_ERROR(Forward(prompt));
  }
  std::vector<engine::Row> rows(streams);
  const auto start = SteadyClock::now();
  for (uint32_t step = 0; step < tokens; ++step) {
    for (uint32_t stream = 0; stream < streams; ++stream) {
      rows[stream] = {slots[stream], RandomId(step + 1000 * stream, model().config().vocabulary), kDecodePrompt + step,
                      true};
    }
    RETURN_IF_ERROR(Forward(rows));
  }
  const double seconds = SecondsSince(start);
  for (const uint32_t slot : slots) runtime_->Release(slot);
  return tokens * streams / seconds;
}

// The embedding is read one row a token, unless it is the output matrix too.
uint64_t EngineRuns::BytesPerStep() const {
  uint64_t bytes = model().weight_bytes();
  if (file().FindTensor("output.weight") != nullptr) bytes -= file().FindTensor("token_embd.weight")->bytes.size();
  return bytes;
}

double EngineRuns::OperationsPerToken() const {
  double weights = 0;
  for (const engine::TensorInfo& tensor : file().tensors()) {
    const bool product = tensor.dimensions == 2 && tensor.name != "token_embd.weight" && tensor.name != "output.weight";
    if (product) weights += static_cast<double>(tensor.weights());
  }
  return 2 * weights;
}

}  // namespace bulkhead::bench
