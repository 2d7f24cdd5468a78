// Layers that attend.
#include <algorithm>
#include <cstring>

#include "engine/model/forward_pass.h"

namespace bulkhead::engine {

using kernels::Rows;

// Where this layer's keys and values stand: a pointer for each page of each sequence, and for each row's own.
void ForwardPass::PointAtPages(uint32_t layer) {
  workspace_.key_pages.clear();
  workspace_.value_pages.clear();
  for (auto& span : workspace_.spans) {
    const uint32_t last = span.first_position + span.tokens - 1;
    const auto& table = kv_.Table(rows_[span.first_token].slot);
    span.kv = {workspace_.key_pages.data() + workspace_.key_pages.size(),
               workspace_.value_pages.data() + workspace_.value_pages.size(),
               kPagePositions,
               kv_.type(),
               kv_.head_stride(),
               kv_.position_stride()};
    for (uint32_t page = 0; page <= last / kPagePositions; ++page) {
      workspace_.key_pages.push_back(kv_.Keys(layer, table[page]));
      workspace_.value_pages.push_back(kv_.Values(layer, table[page]));
    }
  }
  workspace_.key_destinations.clear();
  workspace_.value_destinations.clear();
  for (const Row& row : rows_) {
    const uint32_t page = kv_.Table(row.slot)[row.position / kPagePositions];
    workspace_.key_destinations.push_back(kv_.Keys(layer, page) + kv_.OffsetOf(row.position));
    workspace_.value_destinations.push_back(kv_.Values(layer, page) + kv_.OffsetOf(row.position));
  }
}

void ForwardPass::NormHeads(const Rows& x, uint32_t heads, const std::vector<float>& weight) const {
  if (weight.empty()) return;
  const Rows by_head{x.data, head_, x.tokens * heads, config_.head_size};
  Norm(by_head, weight, by_head);
}

// Heads stand head_size apart after a product and padded apart in attention; the padding is zeros.
void ForwardPass::Spread(const Rows& x, uint32_t heads) const {
  if (head_ == config_.head_size) return;
  for (uint32_t token = 0; token < x.tokens; ++token) {
    float* row = x.data + token * x.stride;
    for (uint32_t head = heads; head-- > 0;) {
      std::memmove(row + head * head_, row + head * config_.head_size, config_.head_size * sizeof(float));
      std::fill(row + head * head_ + config_.head_size, row + (head + 1) * head_, 0.0F);
    }
  }
}

void ForwardPass::Gather(const Rows& x, uint32_t heads) const {
  if (head_ == config_.head_size) return;
  for (uint32_t token = 0; token < x.tokens; ++token) {
    float* row = x.data + token * x.stride;
    for (uint32_t head = 0; head < heads; ++head) {
      std::memmove(row + head * config_.head_size, row + head * head_, config_.head_size * sizeof(float));
    }
  }
}

// A gated query projection gives each head's query, then its gate; they part into query_ and the head gates.
void ForwardPass::SplitGates() const {
  const uint32_t size = config_.head_size;
  const float* joint = workspace_.at(workspace_.layout().projected);
  float* gates = workspace_.at(workspace_.layout().head_gate);
  for (uint64_t head = 0; head < uint64_t{count_} * config_.heads; ++head) {
    const float* from = joint + head * 2 * size;
    std::memcpy(query_.data + head * size, from, size * sizeof(float));
    std::memcpy(gates + head * size, from + size, size * sizeof(float));
  }
}

void ForwardPass::Project(const Model::Layer& layer) const {
  if (!config_.gated_attention) {
    MultiplyPrecisely(normed_, {{&layer.query, &query_}, {&layer.key, &key_}, {&layer.value, &value_}});
    Spread(query_, config_.heads);
  } else {
    const Rows joint = Buffer(workspace_.layout().projected, 2 * config_.heads * config_.head_size);
    MultiplyPrecisely(normed_, {{&layer.query, &joint}, {&layer.key, &key_}, {&layer.value, &value_}});
    SplitGates();
    // Split rows stand as close as the heads do.
    for (uint32_t token = count_; head_ != config_.head_size && token-- > 0;) {
      const uint32_t width = config_.heads * config_.head_size;
      std::memmove(query_.data + token * query_.stride, query_.data + size_t{token} * width, width * sizeof(float));
    }
    Spread(query_, config_.heads);
  }
  Spread(key_, config_.kv_heads);
  Spread(value_, config_.kv_heads);
}

void ForwardPass::Attend(const Model::Layer& layer) {
  Project(layer);
  NormHeads(query_, config_.heads, layer.query_norm);
  NormHeads(key_, config_.kv_heads, layer.key_norm);
  if (config_.rope_dimensions != 0) {
    const kernels::RopeTable rope{workspace_.at(workspace_.layout().rope), workspace_.rope_rows.data(),
                                  config_.rope_dimensions, config_.rope_pairing};
    compute_.Rope(query_, config_.heads, head_, rope);
    compute_.Rope(key_, config_.kv_heads, head_, rope);
  }
  PointAtPages(layer.kv_layer);
  compute_.StoreKv(Const(key_), head_, kv_.type(), kv_.head_stride(), workspace_.key_destinations.data());
  compute_.StoreKv(Const(value_), head_, kv_.type(), kv_.head_stride(), workspace_.value_destinations.data());
  compute_.Attention({config_.heads, config_.kv_heads, head_, 0, config_.attention_scale}, workspace_.spans,
                     Const(query_), attention_);
  Gather(attention_, config_.heads);
  Rows input = attention_;
  input.count = config_.heads * config_.head_size;
  if (config_.gated_attention) compute_.SigmoidMul(Buffer(workspace_.layout().head_gate, input.count), input);
  Multiply(input, {{&layer.output, &normed_}});
  AddToResidual(normed_);
}

}  // namespace bulkhead::engine
