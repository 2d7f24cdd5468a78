// One model's weights and its forward computation. Immutable after Load and shared by threads; all mutable state is
// the caller's: sequences and workspace come from PlanRuntime.
//
// Arithmetic: docs/numerics.md. A row's logits depend on its sequence's tokens alone, never on what else is computed
// beside it, on the chunking, the threads or the kernel tier.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/status.h"
#include "engine/model/model_config.h"

namespace bulkhead::gguf {
class File;
}

namespace bulkhead::engine {

class ComputeContext;
class PlanRuntime;

// One token at one position of the sequence in `slot`. Rows of one sequence stand together, ascending by position.
struct Row {
  uint32_t slot = 0;
  int32_t token = 0;
  uint32_t position = 0;
  bool wants_logits = false;
};

class Model {
 public:
  // Views into the map behind `file`, which outlives the model. Every tensor's name, type and shape is checked.
  static absl::StatusOr<std::unique_ptr<const Model>> Load(const gguf::File& file);
  ~Model();

  // Computes all rows, writes their K and V, and leaves the logits of the rows that want them in the workspace, in
  // their order. Asks `stop` between layers; true ends the forward early with kCancelled, and nothing is committed: the
  // same rows may be computed again. Adds 1 to `progress` for each layer.
  absl::Status Forward(std::span<const Row> rows, PlanRuntime& runtime, ComputeContext& compute,
                       const std::function<bool()>& stop, std::atomic<uint64_t>& progress) const;

  [[nodiscard]] const ModelConfig& config() const { return config_; }
  // Bytes of all weights in the file.
  [[nodiscard]] uint64_t weight_bytes() const { return weight_bytes_; }

 private:
  struct Weights;
  explicit Model(ModelConfig config);

  ModelConfig config_;
  uint64_t weight_bytes_ = 0;
  std::unique_ptr<Weights> weights_;
};

}  // namespace bulkhead::engine
