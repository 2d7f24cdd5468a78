// One model's weights and its forward computation. Immutable after Load and shared by threads; all mutable state is
// the caller's: KV pages and workspace belong to PlanRuntime.
//
// Arithmetic: docs/numerics.md. A row's logits depend on its sequence's tokens alone, never on what else is computed
// beside it, on the chunking, the threads or the kernel tier.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/model/kv_pool.h"
#include "engine/model/model_config.h"
#include "engine/model/state_pool.h"
#include "engine/model/workspace.h"
#include "kernels/compute.h"

namespace bulkhead::engine {

class GgufFile;

// One token at one position of the sequence in `slot`. Rows of one sequence stand together, positions consecutive.
struct Row {
  uint32_t slot = 0;
  int32_t token = 0;
  uint32_t position = 0;
  bool wants_logits = false;
};

// Asked between layers; true gives the forward up.
using StopCheck = std::function<bool()>;

struct ForwardState {
  KvPool& kv;         // holds a page for every row's position
  StatePool& states;  // covers just the positions before the rows' of each slot
  Workspace& workspace;
  const kernels::Compute& compute;
  const StopCheck& stop;            // may be empty
  std::atomic<uint64_t>& progress;  // one more for each layer
};

class Model {
 public:
  // Views into the map behind `file`, which outlives the model. Every tensor's name, type and shape is checked; one
  // that is not understood is kModelUnsupported, since leaving it out would compute something else.
  static absl::StatusOr<std::unique_ptr<const Model>> Load(const GgufFile& file);

  // Computes all rows, writes their K and V, and leaves the logits of the rows that want them in the workspace, in
  // their order. Given up, it answers kCancelled, and the same rows may be computed again. kInternal where the rows do
  // not fit the workspace.
  absl::Status Forward(std::span<const Row> rows, const ForwardState& state) const;

  [[nodiscard]] const ModelConfig& config() const { return config_; }
  // Bytes of all weights in the file.
  [[nodiscard]] uint64_t weight_bytes() const { return weight_bytes_; }

 private:
  friend class ModelLoader;
  friend class ForwardPass;

  struct Layer {
    struct GatedUnit {
      kernels::WeightMatrix gate, up, down;
    };
    struct Mixture {
      kernels::WeightMatrix router{};
      GatedUnit experts{};  // of each matrix the rows of all experts, one after the other
      GatedUnit shared{};
      kernels::WeightMatrix shared_gate{};
    };
    // What kinds other than attention use; the rest stays empty.
    struct Recurrent {
      kernels::WeightMatrix in{}, out{};
      kernels::WeightMatrix gate{};           // kDeltaNet: of the output
      kernels::WeightMatrix beta{}, alpha{};  // kDeltaNet; beta gives both where the gates are joint
      bool joint_gates = false;
      std::vector<float> taps;       // [taps][channels]
      std::vector<float> taps_bias;  // kMamba2
      std::vector<float> step_bias;  // per head, as the next two
      std::vector<float> decay;      // negative
      std::vector<float> skip;       // kMamba2
      std::vector<float> norm;       // kMamba2: inner; kDeltaNet: of one head
    };

    LayerKind kind = LayerKind::kAttention;
    uint32_t kv_layer = 0;      // kAttention: number among those
    uint64_t state_offset = 0;  // others: floats before its own
    std::vector<float> attention_norm;
    std::vector<float> query_norm;  // per head; empty where the architecture has none
    std::vector<float> key_norm;
    std::vector<float> feed_forward_norm;  // empty where nothing feeds forward
    kernels::WeightMatrix query{}, key{}, value{}, output{};
    GatedUnit feed_forward{};
    Mixture mixture{};
    Recurrent recurrent;
  };

  Model() = default;

  ModelConfig config_;
  uint64_t weight_bytes_ = 0;
  kernels::WeightMatrix embedding_{};
  kernels::WeightMatrix output_{};  // the embedding again where they are tied
  std::vector<float> output_norm_;
  std::vector<double> rope_frequencies_;  // radians a position, one for each pair
  std::vector<Layer> layers_;
};

}  // namespace bulkhead::engine
