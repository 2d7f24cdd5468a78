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

uint32_t WidestFeedForward(const ModelConfig& config) {
  return std::max({config.feed_forward, config.mixture.feed_forward, config.mixture.shared_feed_forward});
}

void LayOutRecurrent(const ModelConfig& config, uint64_t rows, ArenaLayout& layout, uint64_t& end) {
  uint64_t projected = config.gated_attention ? 2 * uint64_t{config.heads} * config.head_size : 0;
  uint64_t channels = 0;
  for (const LayerKind kind : config.kinds) {
    projected = std::max<uint64_t>(projected, config.projected(kind));
    channels = std::max<uint64_t>(channels, config.conv_channels(kind));
  }
  const RecurrentShape& shape = config.recurrent;
  const bool gated = config.gated_attention;  // and so it has delta nets
  layout.projected = Take(end, 2 * rows * projected);
  layout.convolved = Take(end, rows * channels);
  layout.inner = Take(end, rows * shape.inner);
  layout.inner_gate = Take(end, gated ? 2 * rows * shape.inner : 0);
  layout.beta = Take(end, gated ? 2 * rows * shape.heads : 0);
  layout.keep = Take(end, gated ? 2 * rows * shape.heads : 0);
  layout.joint_gates = Take(end, gated ? 4 * rows * shape.heads : 0);
  layout.head_gate = Take(end, gated ? rows * config.heads * config.head_size : 0);
}

void LayOutMixture(const ModelConfig& config, uint64_t rows, ArenaLayout& layout, uint64_t& end) {
  if (config.mixture.experts == 0) return;
  layout.router = Take(end, rows * config.mixture.experts);
  layout.expert_input = Take(end, rows * config.embedding);
  layout.mixture = Take(end, rows * config.embedding);
}

}  // namespace

uint32_t WidestInput(const ModelConfig& config) {
  const uint32_t widest = std::max(
      {config.embedding, WidestFeedForward(config), config.heads * config.padded_head_size(), config.recurrent.inner});
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
  layout.gate = Take(end, uint64_t{rows} * WidestFeedForward(config));
  layout.up = Take(end, uint64_t{rows} * WidestFeedForward(config));
  layout.rope = Take(end, uint64_t{rows} * config.rope_dimensions);
  layout.quantised = Take(end, (std::max(kernels::ActivationBytes(rows, WidestInput(config)),
                                         kernels::ActivationBytes(2 * rows, config.embedding)) +
                                3) /
                                   sizeof(float));
  LayOutRecurrent(config, rows, layout, end);
  LayOutMixture(config, rows, layout, end);
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
  ASSIGN_OR_RETURN(workspace.logits_, PrivateMemory::Map(workspace.logit_rows_ * LogitRowBytes(config), "logits rows"));
  const uint64_t pages = uint64_t{shape.sequences} * ((uint64_t{shape.context} + kPagePositions - 1) / kPagePositions);
  workspace.ids.reserve(shape.forward_rows);
  workspace.rope_rows.reserve(shape.forward_rows);
  workspace.key_destinations.reserve(shape.forward_rows);
  workspace.value_destinations.reserve(shape.forward_rows);
  workspace.spans.reserve(shape.sequences);
  workspace.key_pages.reserve(pages);
  workspace.value_pages.reserve(pages);
  workspace.states.reserve(shape.sequences);
  workspace.expert_pairs.reserve(uint64_t{shape.forward_rows} * config.mixture.used);
  workspace.expert_order.reserve(config.mixture.experts);
  workspace.expert_tasks.reserve(2 * uint64_t{config.mixture.experts});
  return workspace;
}

kernels::ActivationBuffer Workspace::activations() const {
  const uint64_t start = layout_.quantised * sizeof(float);
  return {{arena_.data() + start, (layout_.projected - layout_.quantised) * sizeof(float)}};
}

std::span<float> Workspace::Logits(uint32_t index) const {
  return {logits() + uint64_t{index} * vocabulary_, vocabulary_};
}

}  // namespace bulkhead::engine
