#include "engine/model/workspace.h"

#include <algorithm>

#include "engine/model/model_config.h"

namespace bulkhead::engine {
namespace {

constexpr uint64_t kAlignFloats = 16;  // a cache line

uint64_t Take(uint64_t& end, uint64_t floats) {
  const uint64_t start = end;
  end += (floats + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
  return start;
}

}  // namespace

uint32_t WidestInput(const ModelConfig& config) {
  const uint32_t widest = std::max({config.embedding, config.feed_forward, config.heads * config.padded_head_size()});
  return (widest + 31) / 32 * 32;
}

// Dimensions are within ModelConfig's limits and rows within 32 bits, so nothing here leaves 64 bits.
ArenaLayout ArenaLayout::Of(const ModelConfig& config, uint32_t rows) {
  const uint64_t query_width = uint64_t{config.heads} * config.padded_head_size();
  const uint64_t kv_width = uint64_t{config.kv_heads} * config.padded_head_size();
  ArenaLayout layout;
  uint64_t end = 0;
  layout.residual = Take(end, uint64_t{rows} * config.embedding);
  layout.normed = Take(end, 2 * uint64_t{rows} * config.embedding);
  layout.query = Take(end, 2 * rows * query_width);
  layout.key = Take(end, 2 * rows * kv_width);
  layout.value = Take(end, 2 * rows * kv_width);
  layout.attention = Take(end, rows * query_width);
  layout.gate = Take(end, uint64_t{rows} * config.feed_forward);
  layout.up = Take(end, uint64_t{rows} * config.feed_forward);
  layout.rope = Take(end, uint64_t{rows} * config.rope_dimensions);
  layout.quantised = Take(end, (std::max(kernels::ActivationBytes(rows, WidestInput(config)),
                                         kernels::ActivationBytes(2 * rows, config.embedding)) +
                                3) /
                                   sizeof(float));
  layout.bytes = end * sizeof(float);
  return layout;
}

absl::StatusOr<Workspace> Workspace::Map(const ModelConfig& config, const MemoryShape& shape) {
  Workspace workspace;
  workspace.forward_rows_ = shape.forward_rows;
  workspace.logit_rows_ = shape.logit_rows != 0 ? shape.logit_rows : shape.sequences;
  workspace.vocabulary_ = config.vocabulary;
  workspace.layout_ = ArenaLayout::Of(config, shape.forward_rows);
  ASSIGN_OR_RETURN(workspace.arena_, PrivateMemory::Map(workspace.layout_.bytes, "forward arena"));
  ASSIGN_OR_RETURN(workspace.logits_,
                   PrivateMemory::Map(workspace.logit_rows_ * BytesPerSequence(config), "logits rows"));
  const uint64_t pages = uint64_t{shape.sequences} * ((uint64_t{shape.context} + kPagePositions - 1) / kPagePositions);
  workspace.ids.reserve(shape.forward_rows);
  workspace.rope_rows.reserve(shape.forward_rows);
  workspace.key_destinations.reserve(shape.forward_rows);
  workspace.value_destinations.reserve(shape.forward_rows);
  workspace.spans.reserve(shape.sequences);
  workspace.key_pages.reserve(pages);
  workspace.value_pages.reserve(pages);
  return workspace;
}

kernels::ActivationBuffer Workspace::activations() const {
  const uint64_t start = layout_.quantised * sizeof(float);
  return {{arena_.data() + start, arena_.size() - start}};
}

std::span<float> Workspace::Logits(uint32_t index) const {
  return {logits() + uint64_t{index} * vocabulary_, vocabulary_};
}

}  // namespace bulkhead::engine
