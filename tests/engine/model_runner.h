// Test support: a model file with a runtime of its own, fed token by token or in chunks without an engine around it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "base/status.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "engine/runtime/plan_runtime.h"
#include "kernels/compute.h"

namespace bulkhead::engine {

class ModelRunner {
 public:
  struct Options {
    MemoryShape shape{.context = 512, .sequences = 8};
    uint32_t threads = 1;
    std::string tier;  // empty = best
  };

  // One sequence's next tokens, and which of their logits rows are wanted: those of every `logits_every`th position, or
  // (0) the last one's.
  struct Feed {
    uint32_t slot;
    std::span<const int32_t> tokens;
    uint32_t logits_every = 0;
  };

  static absl::StatusOr<std::unique_ptr<ModelRunner>> Open(const std::string& path, const Options& options);

  // A fresh sequence's slot, with the whole context reserved.
  uint32_t NewSequence();
  void EndSequence(uint32_t slot);
  // One forward over all feeds, appended to their sequences. The rows wanted, in order.
  absl::StatusOr<std::vector<std::vector<float>>> Forward(std::span<const Feed> feeds);
  // The same for one sequence, `chunk` tokens a forward (0 = all at once).
  absl::StatusOr<std::vector<std::vector<float>>> Prefill(uint32_t slot, std::span<const int32_t> tokens,
                                                          uint32_t chunk, uint32_t logits_every);

  [[nodiscard]] const Model& model() const { return *model_; }
  [[nodiscard]] const GgufFile& file() const { return file_; }
  [[nodiscard]] kernels::ComputePool& pool() { return *pool_; }
  [[nodiscard]] PlanRuntime& runtime() { return *runtime_; }

 private:
  ModelRunner(MappedFile map, GgufFile file) : map_(std::move(map)), file_(std::move(file)) {}

  MappedFile map_;
  GgufFile file_;
  std::unique_ptr<const Model> model_;
  std::unique_ptr<PlanRuntime> runtime_;
  std::unique_ptr<kernels::ComputePool> pool_;
  std::unique_ptr<kernels::Compute> compute_;
  std::vector<uint32_t> positions_;
  std::atomic<uint64_t> progress_{0};
};

// The tables this processor can run, by name.
std::vector<std::string> RunnableTierNames();

}  // namespace bulkhead::engine
