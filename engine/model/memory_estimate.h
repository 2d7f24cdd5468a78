// How many private bytes a model needs, from its header alone. `--inspect` prints what this says and PlanRuntime maps
// what this says: one function, so that the estimate cannot drift from the truth. Pure.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "kernels/kernels.h"

namespace bulkhead::engine {

struct ModelConfig;

using kernels::KvType;

// Positions of one KV page, a multiple of the attention's block.
inline constexpr uint32_t kPagePositions = 64;
// Rows of the largest forward; beyond it a prefill takes another step.
inline constexpr uint32_t kForwardRows = 256;

// Checkpoints of recurrent state that the prefix cache may keep for each sequence of a worker: one where its prompt
// parts from others', one where its conversation ended.
inline constexpr uint32_t kStateSnapshotsPerSequence = 2;

struct MemoryShape {
  uint32_t context = 0;  // tokens one sequence may hold
  uint32_t sequences = 0;
  KvType kv_type = KvType::kF16;
  uint64_t kv_tokens = 0;                // size of the KV pool; 0 = context * sequences
  uint32_t forward_rows = kForwardRows;  // other numbers are for tests
  uint32_t logit_rows = 0;               // logits rows of one forward; 0 = sequences
  uint32_t state_snapshots = 0;          // copies of recurrent state beside those of the sequences
};

struct MemoryEstimate {
  uint64_t kv_bytes = 0;        // pages of all sequences
  uint64_t sequence_bytes = 0;  // of all sequences: a logits row each, and state that does not grow with the context
  uint64_t arena_bytes = 0;     // activations of the largest forward, whatever the shape
  uint64_t overhead_bytes = 0;  // tokenizer tables, stacks, compute scratch, allocator
  [[nodiscard]] uint64_t total() const { return kv_bytes + sequence_bytes + arena_bytes + overhead_bytes; }
};

// Bytes of K and V of one position in all layers.
uint64_t KvBytesPerToken(const ModelConfig& config, KvType type);

// Bytes each sequence of a worker adds beside its KV: its logits row, its recurrent state and its share of checkpoints
// (the manifest's recurrent_bytes_per_sequence).
uint64_t BytesPerSequence(const ModelConfig& config);

// Of a logits row and the hidden row before it, and of all recurrent state: two buffers a sequence (StatePool) and the
// snapshots. A state that leaves 64 bits is UINT64_MAX / 4.
uint64_t LogitRowBytes(const ModelConfig& config);
uint64_t StateBytes(const ModelConfig& config, const MemoryShape& shape);

// Scratch one compute thread needs for this model (ComputePool::ReserveScratch).
uint64_t ScratchBytes(const ModelConfig& config);

// Pages of the pool: every sequence's context in whole pages.
uint64_t PoolPages(const MemoryShape& shape);

// kExceedsCeiling where the numbers leave 64 bits (a hostile header); every other judgement is the caller's.
absl::StatusOr<MemoryEstimate> EstimateMemory(const ModelConfig& config, const MemoryShape& shape);

}  // namespace bulkhead::engine
