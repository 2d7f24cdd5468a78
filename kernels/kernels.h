// The kernels of one tier as a table of functions, and the plain structs they take. Every tier computes the same bits
// (docs/numerics.md). A function here is single-threaded, keeps no state, allocates nothing and does not fail; what it
// is given is the caller's and was checked by the caller. kernels/compute.h runs them on a ComputePool.
//
// Tier translation units include this header and are built with their own instruction flags, so it holds plain data
// only: no standard library types, no inline functions (an inline copy built for AVX-512 could serve the whole
// program).
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/numerics.h"
#include "kernels/weight_type.h"

namespace bulkhead::kernels {

// `tokens` rows of `cols` activations, in the formats their matrices need; the others may be null.
struct Activations {
  uint32_t tokens;
  uint32_t cols;          // a multiple of 32 where a matrix of a block type is multiplied
  const float* f32;       // row t at f32 + t * f32_stride
  size_t f32_stride;      // in floats
  const int8_t* q8;       // [tokens][cols], within -127..127
  const float* q8_scale;  // [tokens][cols / 32]
  const int32_t* q8_sum;  // [tokens][cols / 32], sum of the group's int8 values
};

// Rows of a weight matrix as they stand in the file; any alignment.
struct WeightMatrix {
  const void* data;
  size_t row_bytes;
  uint32_t rows;
  uint32_t cols;
  WeightType type;
};

// out[t * out_stride + r] = weights row r . activations row t
struct MatMulTask {
  WeightMatrix weights;
  Activations x;
  float* out;
  size_t out_stride;  // in floats
};

enum class KvType : uint8_t { kF16, kF32 };

enum class RopePairing : uint8_t {
  kNorm,  // elements 2i and 2i+1 turn together
  kNeox,  // elements i and i + rotated/2 turn together
};

// Keys and values of one sequence in one layer. Page i holds positions [i * page_positions, (i+1) * page_positions);
// the vector of (head, position) starts head * head_stride + (position mod page_positions) * position_stride elements
// after the page's pointer. Only positions up to the query's are read, so a page's tail may hold anything.
struct KvPages {
  const void* const* k;
  const void* const* v;
  uint32_t page_positions;  // a multiple of 32
  KvType type;
  size_t head_stride;      // in elements
  size_t position_stride;  // in elements
};

// Queries of consecutive positions of one sequence that attend through one KV head.
struct AttentionTask {
  KvPages kv;
  uint32_t kv_head;
  uint32_t head_size;       // a multiple of 16, at most 256
  uint32_t query_heads;     // query heads that share the KV head (GQA)
  uint32_t tokens;          // at most kAttentionTokens
  uint32_t first_position;  // of token 0; token t stands at first_position + t and attends to itself and before
  uint32_t window;          // 0: everything before; else a token attends to the last `window` positions only
  float scale;              // multiplies every q.k
  const float* q;           // head h of token t at q + t * q_stride + h * head_size
  size_t q_stride;          // in floats
  float* out;               // like q
  size_t out_stride;
};

constexpr uint32_t kAttentionTokens = 8;
constexpr uint32_t kAttentionHeadSizeMax = 256;

// A causal convolution over the tokens of one sequence, each channel by itself: tap k of `taps` meets the input of
// taps - 1 - k tokens before. `out` overlaps nothing.
struct ConvTask {
  const float* x;  // row t at x + t * x_stride
  size_t x_stride;
  const float* before;  // taps - 1 rows: the inputs before x's first
  size_t before_stride;
  const float* weights;  // tap k at weights + k * weight_stride
  size_t weight_stride;
  const float* bias;  // may be null
  bool silu;          // out = silu(what the taps gave)
  uint32_t taps;
  uint32_t channels;
  uint32_t tokens;
  float* out;
  size_t out_stride;
};

// One head of a selective state space, over the tokens of one sequence:
// state_i = exp(step * a) * state_i + x_i * step * b; out_i = state_i . c + d * x_i
struct ScanTask {
  float* state;      // [head][columns], carried on in place
  uint32_t head;     // rows
  uint32_t columns;  // a multiple of 16, at most kScanStateMax
  uint32_t tokens;
  const float* x;  // `head` floats a token
  size_t x_stride;
  const float* b;  // `columns` floats a token, c likewise
  const float* c;
  size_t bc_stride;
  const float* step;  // one a token
  size_t step_stride;
  float a;
  float d;
  float* out;  // as x
  size_t out_stride;
};

// One head of the gated delta rule, over the tokens of one sequence:
// state_j *= keep; state_j += k * (v_j - state_j . k) * beta; out_j = state_j . q
struct DeltaTask {
  float* state;      // [values][columns], carried on in place
  uint32_t values;   // rows
  uint32_t columns;  // a multiple of 16, at most kScanStateMax
  uint32_t tokens;
  const float* q;  // `columns` floats a token, k likewise
  const float* k;
  size_t qk_stride;
  const float* v;  // `values` floats a token
  size_t v_stride;
  const float* keep;  // one a token, beta likewise
  const float* beta;
  size_t gate_stride;
  float* out;  // as v
  size_t out_stride;
};

constexpr uint32_t kScanStateMax = 1024;

struct KernelTable {
  const char* name;

  // One row into int8 groups of 32 (format kQ8Group32). A group holding a NaN or infinity gets the scale NaN.
  void (*quantise_q8)(const float* x, uint32_t cols, int8_t* q8, float* scale, int32_t* sum);

  // Rows [row_begin, row_end) of the task, all tokens. `scratch` is 64-byte aligned; where it is smaller than the fast
  // path wants (MatMulScratchBytes) a slower one gives the same bits.
  void (*matmul)(const MatMulTask* task, uint32_t row_begin, uint32_t row_end, void* scratch, size_t scratch_bytes);

  // One row of weights into floats.
  void (*dequantise)(WeightType type, const void* row, uint32_t cols, float* out);

  // out = x / sqrt(mean(x^2) + epsilon) * weight; weight may be null (all ones); out may be x.
  void (*rms_norm)(const float* x, const float* weight, float epsilon, uint32_t count, float* out);

  // Turns the first `rotated` elements of one head in place; cos_sin holds rotated/2 cosines, then rotated/2 sines.
  void (*rope)(float* head, uint32_t rotated, RopePairing pairing, const float* cos_sin);

  // `scratch` is 64-byte aligned and at least AttentionScratchBytes(query_heads, head_size).
  void (*attention)(const AttentionTask* task, void* scratch);

  // out = silu(gate) * up; out may be gate or up.
  void (*silu_mul)(const float* gate, const float* up, uint32_t count, float* out);

  // x += scale * y
  void (*add_scaled)(const float* y, float scale, uint32_t count, float* x);

  // The project's exp; out may be x.
  void (*exp)(const float* x, uint32_t count, float* out);

  // exp(scale * (x - max)) / sum; out may be x; count >= 1.
  void (*softmax)(const float* x, float scale, uint32_t count, float* out);

  // x . y, in 16 lanes.
  float (*dot)(const float* x, const float* y, uint32_t count);

  // Floats into the KV cache's type, round to nearest even.
  void (*store_kv)(const float* x, uint32_t count, KvType type, void* out);

  // Recurrent layers.
  void (*convolve)(const ConvTask* task);
  void (*scan)(const ScanTask* task);
  void (*delta_scan)(const DeltaTask* task);
};

// Scratch of one thread for matrices of up to `cols` columns, and for attention.
size_t MatMulScratchBytes(uint32_t cols);
size_t AttentionScratchBytes(uint32_t query_heads, uint32_t head_size);

}  // namespace bulkhead::kernels
