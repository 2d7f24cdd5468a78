#include "tests/engine/model_runner.h"

#include <fcntl.h>

#include <algorithm>
#include <iterator>

#include "base/fd.h"
#include "base/sys.h"
#include "kernels/dispatch.h"

namespace bulkhead::engine {

absl::StatusOr<std::unique_ptr<ModelRunner>> ModelRunner::Open(const std::string& path, const Options& options) {
  const UniqueFd fd(sys::Open(path.c_str(), O_RDONLY));
  if (!fd.valid()) return Error(Reason::kModelNotFound, path);
  ASSIGN_OR_RETURN(MappedFile map, MappedFile::Map(fd.get()));
  ASSIGN_OR_RETURN(GgufFile file, GgufFile::Parse(map.bytes()));
  auto runner = std::unique_ptr<ModelRunner>(new ModelRunner(std::move(map), std::move(file)));
  ASSIGN_OR_RETURN(runner->model_, Model::Load(runner->file_));
  ASSIGN_OR_RETURN(runner->runtime_, PlanRuntime::Create(runner->model_->config(), options.shape));
  ASSIGN_OR_RETURN(runner->pool_,
                   kernels::ComputePool::Create(
                       {.threads = options.threads, .scratch_bytes = ScratchBytes(runner->model_->config())}));
  const kernels::KernelTable* table = kernels::DefaultTier().table;
  for (const kernels::KernelTable* runnable : kernels::RunnableTiers(kernels::DetectCpuFeatures())) {
    if (options.tier == runnable->name) table = runnable;
  }
  runner->compute_ = std::make_unique<kernels::Compute>(*table, *runner->pool_);
  runner->positions_.resize(options.shape.sequences);
  return runner;
}

uint32_t ModelRunner::NewSequence() {
  const Admission admission = runtime_->Admit(runtime_->shape().context);
  positions_[admission.slot] = 0;
  return admission.slot;
}

void ModelRunner::EndSequence(uint32_t slot) { runtime_->Release(slot); }

absl::StatusOr<std::vector<std::vector<float>>> ModelRunner::Forward(std::span<const Feed> feeds) {
  std::vector<Row> rows;
  for (const Feed& feed : feeds) {
    uint32_t& position = positions_[feed.slot];
    RETURN_IF_ERROR(runtime_->Grow(feed.slot, position + static_cast<uint32_t>(feed.tokens.size())));
    for (size_t i = 0; i < feed.tokens.size(); ++i) {
      const bool last = i + 1 == feed.tokens.size();
      const bool wanted = feed.logits_every == 0 ? last : (position + 1) % feed.logits_every == 0;
      rows.push_back({feed.slot, feed.tokens[i], position++, wanted});
    }
  }
  const StopCheck never;
  RETURN_IF_ERROR(
      model_->Forward(rows, {runtime_->kv(), runtime_->states(), runtime_->workspace(), *compute_, never, progress_}));
  std::vector<std::vector<float>> logits;
  for (const Row& row : rows) {
    if (!row.wants_logits) continue;
    const auto span = runtime_->workspace().Logits(static_cast<uint32_t>(logits.size()));
    logits.emplace_back(span.begin(), span.end());
  }
  return logits;
}

absl::StatusOr<std::vector<std::vector<float>>> ModelRunner::Prefill(uint32_t slot, std::span<const int32_t> tokens,
                                                                     uint32_t chunk, uint32_t logits_every) {
  std::vector<std::vector<float>> logits;
  const size_t step = chunk == 0 ? tokens.size() : chunk;
  for (size_t start = 0; start < tokens.size(); start += step) {
    const Feed feed{slot, tokens.subspan(start, std::min(step, tokens.size() - start)), logits_every};
    ASSIGN_OR_RETURN(auto part, Forward({&feed, 1}));
    if (logits_every == 0) logits.clear();
    std::move(part.begin(), part.end(), std::back_inserter(logits));
  }
  return logits;
}

std::vector<std::string> RunnableTierNames() {
  std::vector<std::string> names;
  for (const kernels::KernelTable* table : kernels::RunnableTiers(kernels::DetectCpuFeatures())) {
    names.emplace_back(table->name);
  }
  return names;
}

}  // namespace bulkhead::engine
