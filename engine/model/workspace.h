// The memory one forward computes in: activations of at most `forward_rows` rows, logits of at most `logit_rows`, and
// the small tables kernels take. Mapped and touched at once, so a forward allocates nothing. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/model/memory_estimate.h"
#include "engine/model/private_memory.h"
#include "kernels/compute.h"

namespace bulkhead::engine {

// Where each buffer stands in the arena, in floats from its start; the buffers are sized for `rows` rows, those
// marked 2x for as many again (ForwardPass::MultiplyPrecisely).
struct ArenaLayout {
  uint64_t residual = 0;   // embedding
  uint64_t normed = 0;     // 2x embedding
  uint64_t query = 0;      // 2x heads * padded head
  uint64_t key = 0;        // 2x kv_heads * padded head
  uint64_t value = 0;      // 2x kv_heads * padded head
  uint64_t attention = 0;  // heads * padded head
  uint64_t gate = 0;       // the widest feed-forward part
  uint64_t up = 0;         // likewise
  uint64_t rope = 0;       // rope_dimensions
  uint64_t quantised = 0;  // ActivationBytes of the widest input
  // Recurrent layers, and gated attention.
  uint64_t projected = 0;    // 2x what enters the convolution and what stands beside it, or queries with gates
  uint64_t convolved = 0;    // conv_channels
  uint64_t inner = 0;        // inner
  uint64_t inner_gate = 0;   // 2x inner
  uint64_t beta = 0;         // 2x heads of the state
  uint64_t keep = 0;         // likewise
  uint64_t joint_gates = 0;  // 2x twice as many
  uint64_t head_gate = 0;    // heads * head_size
  // Mixtures.
  uint64_t router = 0;        // experts
  uint64_t expert_input = 0;  // embedding
  uint64_t mixture = 0;       // embedding
  uint64_t bytes = 0;

  static ArenaLayout Of(const ModelConfig& config, uint32_t rows);
};

// Columns of the model's widest product, in whole activation groups.
uint32_t WidestInput(const ModelConfig& config);

// A token and one of its experts.
struct ExpertPair {
  uint32_t expert;
  uint32_t token;  // row of the forward
  float weight;
};

class Workspace {
 public:
  static absl::StatusOr<Workspace> Map(const ModelConfig& config, const MemoryShape& shape);

  [[nodiscard]] float* at(uint64_t offset) const { return reinterpret_cast<float*>(arena_.data()) + offset; }
  [[nodiscard]] const ArenaLayout& layout() const { return layout_; }
  [[nodiscard]] kernels::ActivationBuffer activations() const;

  // Logits row `index` of the last forward, and the hidden rows they are computed from; both have room for twice the
  // rows.
  [[nodiscard]] std::span<float> Logits(uint32_t index) const;
  [[nodiscard]] float* logits() const { return reinterpret_cast<float*>(logits_.data()); }
  [[nodiscard]] float* logit_inputs() const { return logits() + 2 * uint64_t{logit_rows_} * vocabulary_; }

  [[nodiscard]] uint32_t forward_rows() const { return forward_rows_; }
  [[nodiscard]] uint32_t logit_rows() const { return logit_rows_; }
  [[nodiscard]] uint64_t bytes() const { return arena_.size() + logits_.size(); }

  // Tables of one forward, with room for its largest; sized by Map.
  std::vector<uint32_t> ids;
  std::vector<uint32_t> rope_rows;
  std::vector<void*> key_destinations;
  std::vector<void*> value_destinations;
  std::vector<kernels::AttentionSpan> spans;
  std::vector<const void*> key_pages;
  std::vector<const void*> value_pages;
  std::vector<kernels::StateSpan> states;
  std::vector<ExpertPair> expert_pairs;
  std::vector<uint32_t> expert_order;
  std::vector<kernels::MatMulTask> expert_tasks;

 private:
  PrivateMemory arena_;
  PrivateMemory logits_;
  ArenaLayout layout_;
  uint32_t forward_rows_ = 0;
  uint32_t logit_rows_ = 0;
  uint32_t vocabulary_ = 0;
};

}  // namespace bulkhead::engine
