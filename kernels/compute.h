// What a model's forward pass is made of: the kernels of one tier run on a compute pool. Each call returns when its
// result is complete. Shapes were checked at load; nothing here fails or allocates. Not thread-safe: one forward pass
// at a time (the pool's rule).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/compute_pool.h"
#include "kernels/kernels.h"

namespace bulkhead::kernels {

// Where quantised activations live: the owner allocates for the largest step once, before READY.
struct ActivationBuffer {
  std::span<std::byte> memory;  // 64-byte aligned, at least ActivationBytes(tokens, cols)
};
size_t ActivationBytes(uint32_t tokens, uint32_t cols);

// `tokens` rows of `count` floats, row t at data + t * stride.
struct Rows {
  float* data;
  size_t stride;
  uint32_t tokens;
  uint32_t count;
};
struct ConstRows {
  const float* data;
  size_t stride;
  uint32_t tokens;
  uint32_t count;
};

// Row t of the rotation table is rows[t]: rotated/2 cosines, then rotated/2 sines, at table + rows[t] * rotated.
struct RopeTable {
  const float* table;
  const uint32_t* rows;
  uint32_t rotated;  // elements of a head that turn; even
  RopePairing pairing;
};

// The tokens of one sequence in one step, consecutive positions.
struct AttentionSpan {
  KvPages kv;
  uint32_t first_token;  // row within the step's q and out
  uint32_t tokens;
  uint32_t first_position;  // of the first token
};

struct AttentionShape {
  uint32_t heads;  // query heads; a multiple of kv_heads
  uint32_t kv_heads;
  uint32_t head_size;  // a multiple of 16, at most kAttentionHeadSizeMax
  uint32_t window;     // 0: everything before
  float scale;
};

// Scratch a thread needs for matrices of up to `max_cols` columns and this attention.
size_t ThreadScratchBytes(uint32_t max_cols, uint32_t query_heads_per_kv_head, uint32_t head_size);

// The tokens of one sequence in one step, and where a recurrent layer's state before and after them stands.
struct StateSpan {
  const float* before;
  float* after;
  uint32_t first_token;
  uint32_t tokens;
};

// A layer's convolution: the state is its last taps - 1 inputs, row by row.
struct ConvShape {
  const float* weights;  // [taps][channels]
  const float* bias;     // may be null
  uint32_t taps;
  uint32_t channels;
  bool silu;
};

// Both scans: head h's state begins h * rows * columns floats after the layer's.
struct ScanShape {
  uint32_t heads;
  uint32_t rows;     // of the state, and values of a head
  uint32_t columns;  // a multiple of 16, at most kScanStateMax
  uint32_t groups;   // heads of b and c, or of q and k; divides heads
  bool tiled;        // head h takes group h mod groups, else h div (heads / groups)
};

class Compute {
 public:
  // Both outlive the Compute.
  Compute(const KernelTable& kernels, ComputePool& pool) : kernels_(kernels), pool_(pool) {}

  [[nodiscard]] const KernelTable& kernels() const { return kernels_; }
  [[nodiscard]] ComputePool& pool() const { return pool_; }

  // x (count a multiple of 32) made ready for matrices of any type; `quantise` says whether one of them wants
  // kQ8Group32. The result points into x and `buffer`.
  Activations Prepare(const ConstRows& x, bool quantise, const ActivationBuffer& buffer) const;

  // All tasks, one barrier: give q, k and v (or gate and up) together.
  void MatMul(std::span<const MatMulTask> tasks) const;
  void MatMul(const MatMulTask& task) const { MatMul(std::span(&task, 1)); }

  // Row ids[t] of `embedding` into row t of out.
  void EmbeddingLookup(const WeightMatrix& embedding, const uint32_t* ids, const Rows& out) const;

  // Each row by itself; x.count == out.count. For a norm per head pass tokens * heads rows of head_size.
  void RmsNorm(const ConstRows& x, const float* weight, float epsilon, const Rows& out) const;

  // Turns `heads` heads of head_size floats in each row of x.
  void Rope(const Rows& x, uint32_t heads, uint32_t head_size, const RopeTable& table) const;

  // Row t of x into the KV cache at `destinations[t]`: head h's `head_size` floats go head_stride elements apart.
  void StoreKv(const ConstRows& x, uint32_t head_size, KvType type, size_t head_stride,
               void* const* destinations) const;

  // q and out hold shape.heads * head_size floats a row. K and V of the step's own tokens must be stored already.
  void Attention(const AttentionShape& shape, std::span<const AttentionSpan> spans, const ConstRows& q,
                 const Rows& out) const;

  // out = silu(gate) * up
  void SiluMul(const ConstRows& gate, const ConstRows& up, const Rows& out) const;

  // x += scale * y
  void AddScaled(const ConstRows& y, float scale, const Rows& x) const;

  // x *= factor
  void Scale(const Rows& x, float factor) const;

  // out = x * y; out may be either.
  void Multiply(const ConstRows& x, const ConstRows& y, const Rows& out) const;

  // x = 1 / (1 + exp(-x)); the second form leaves that in `gate` and multiplies x by it.
  void Sigmoid(const Rows& x) const;
  void SigmoidMul(const Rows& gate, const Rows& x) const;

  // x = log(1 + exp(x + bias))
  void Softplus(const Rows& x, const float* bias) const;

  // x = exp(x * factors[k])
  void ExpOfProducts(const Rows& x, const float* factors) const;

  // Each row by itself: x = x * (factor / max(sqrt(x . x), epsilon)).
  void UnitNorm(const Rows& x, float epsilon, float factor) const;

  // x (count = channels) into out, which overlaps nothing, and each span's last inputs into its state.
  void Convolve(const ConvShape& shape, std::span<const StateSpan> spans, const ConstRows& x, const Rows& out) const;

  // x and out hold heads * rows floats, b and c groups * columns, step a float a head; a and d one a head.
  void Scan(const ScanShape& shape, std::span<const StateSpan> spans, const ConstRows& x, const ConstRows& b,
            const ConstRows& c, const ConstRows& step, const float* a, const float* d, const Rows& out) const;

  // v and out hold heads * rows floats, q and k groups * columns; keep and beta a float a head.
  void DeltaScan(const ScanShape& shape, std::span<const StateSpan> spans, const ConstRows& q, const ConstRows& k,
                 const ConstRows& v, const ConstRows& keep, const ConstRows& beta, const Rows& out) const;

 private:
  const KernelTable& kernels_;
  ComputePool& pool_;
};

}  // namespace bulkhead::kernels
