#include "engine/model/memory_estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/checked.h"
#include "engine/model/model_config.h"
#include "engine/model/workspace.h"

namespace bulkhead::engine {
namespace {

// Measured on the tests' models: code, libraries' data, thread stacks with compute scratch, and allocator slack.
constexpr uint64_t kProcessBytes = uint64_t{12} << 20;
// Lookup tables of pieces and merges, the sampler's candidates.
constexpr uint64_t kBytesPerToken = 64;
// Scratch is counted for so many threads, whatever a machine has.
constexpr uint64_t kThreads = 8;
// Floats of norms, which are copied, and the layer's table entry.
constexpr uint64_t kBytesPerLayer = 512;

uint64_t ElementBytes(KvType type) { return type == KvType::kF32 ? sizeof(float) : sizeof(uint16_t); }

uint64_t Overhead(const ModelConfig& config) {
  const uint64_t norms = (uint64_t{config.layers} + 1) * 2 * config.embedding * sizeof(float);
  return kProcessBytes + kThreads * ScratchBytes(config) + kBytesPerToken * config.vocabulary +
         kBytesPerLayer * config.layers + norms;
}

}  // namespace

uint64_t KvBytesPerToken(const ModelConfig& config, KvType type) {
  return uint64_t{config.attention_layers()} * config.kv_heads * config.padded_head_size() * 2 * ElementBytes(type);
}

uint64_t LogitRowBytes(const ModelConfig& config) {
  return 2 * (uint64_t{config.vocabulary} + config.embedding) * sizeof(float);
}

uint64_t StateBytes(const ModelConfig& config, const MemoryShape& shape) {
  const uint64_t buffers = 2 * uint64_t{shape.sequences} + shape.state_snapshots;
  return std::min(CheckedMul(buffers, config.state_floats() * sizeof(float)).value_or(UINT64_MAX), UINT64_MAX / 4);
}

uint64_t BytesPerSequence(const ModelConfig& config) {
  return LogitRowBytes(config) + StateBytes(config, {.sequences = 1, .state_snapshots = kStateSnapshotsPerSequence});
}

uint64_t ScratchBytes(const ModelConfig& config) {
  const uint32_t shared = config.kv_heads == 0 ? 0 : config.heads / config.kv_heads;
  return kernels::ThreadScratchBytes(WidestInput(config), shared, config.padded_head_size());
}

uint64_t PoolPages(const MemoryShape& shape) {
  if (shape.kv_tokens != 0) return (shape.kv_tokens + kPagePositions - 1) / kPagePositions;
  return (uint64_t{shape.context} + kPagePositions - 1) / kPagePositions * shape.sequences;
}

absl::StatusOr<MemoryEstimate> EstimateMemory(const ModelConfig& config, const MemoryShape& shape) {
  MemoryEstimate estimate;
  const auto kv = CheckedMul(PoolPages(shape) * kPagePositions, KvBytesPerToken(config, shape.kv_type));
  const uint64_t logit_rows = shape.logit_rows != 0 ? shape.logit_rows : shape.sequences;
  const auto logits = CheckedMul(logit_rows, LogitRowBytes(config));
  const auto sequences = logits ? CheckedAdd(*logits, StateBytes(config, shape)) : std::nullopt;
  if (!kv || !sequences || *kv > UINT64_MAX / 4 || *sequences > UINT64_MAX / 4) {
    return Error(Reason::kExceedsCeiling,
                 fmt::format("context {} for {} sequences: bytes beyond 64 bits", shape.context, shape.sequences));
  }
  estimate.kv_bytes = *kv;
  estimate.sequence_bytes = *sequences;
  estimate.arena_bytes = ArenaLayout::Of(config, shape.forward_rows).bytes;
  estimate.overhead_bytes = Overhead(config);
  return estimate;
}

}  // namespace bulkhead::engine
