#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/model/forward_pass.h"

namespace bulkhead::engine {

using kernels::Rows;

ForwardPass::ForwardPass(const Model& model, std::span<const Row> rows, const ForwardState& state)
    : model_(model),
      config_(model.config_),
      rows_(rows),
      count_(static_cast<uint32_t>(rows.size())),
      head_(config_.padded_head_size()),
      kv_(state.kv),
      states_(state.states),
      workspace_(state.workspace),
      compute_(state.compute),
      stop_(state.stop),
      progress_(state.progress),
      residual_(Buffer(workspace_.layout().residual, config_.embedding)),
      normed_(Buffer(workspace_.layout().normed, config_.embedding)),
      query_(Buffer(workspace_.layout().query, config_.heads * head_)),
      key_(Buffer(workspace_.layout().key, config_.kv_heads * head_)),
      value_(Buffer(workspace_.layout().value, config_.kv_heads * head_)),
      attention_(Buffer(workspace_.layout().attention, config_.heads * head_)) {}

absl::Status ForwardPass::Run() {
  RETURN_IF_ERROR(CheckRows());
  PrepareTables();
  compute_.EmbeddingLookup(model_.embedding_, workspace_.ids.data(), residual_);
  if (config_.embedding_scale != 1) compute_.Scale(residual_, config_.embedding_scale);
  for (const Model::Layer& layer : model_.layers_) {
    if (stop_ && stop_()) return Error(Reason::kCancelled, "forward given up");
    Norm(residual_, layer.attention_norm, normed_);
    if (layer.kind == LayerKind::kAttention) {
      Attend(layer);
    } else {
      Mix(layer);
    }
    FeedForward(layer);
    progress_.fetch_add(1, std::memory_order_relaxed);
  }
  Logits();
  CommitStates();
  return absl::OkStatus();
}

absl::Status ForwardPass::CheckRow(const Row& row) const {
  if (row.token < 0 || static_cast<uint32_t>(row.token) >= config_.vocabulary) {
    return Error(Reason::kInternal,
                 fmt::format("token {} is outside the vocabulary of {}", row.token, config_.vocabulary));
  }
  if (row.position / kPagePositions >= kv_.Table(row.slot).size()) {
    return Error(Reason::kInternal, fmt::format("position {} of slot {} has no page", row.position, row.slot));
  }
  return absl::OkStatus();
}

absl::Status ForwardPass::CheckRows() const {
  const auto wanted = std::count_if(rows_.begin(), rows_.end(), [](const Row& row) { return row.wants_logits; });
  if (rows_.empty() || rows_.size() > workspace_.forward_rows() || wanted > workspace_.logit_rows()) {
    return Error(Reason::kInternal, fmt::format("forward of {} rows with {} logits, at most {} with {}", rows_.size(),
                                                wanted, workspace_.forward_rows(), workspace_.logit_rows()));
  }
  for (const Row& row : rows_) RETURN_IF_ERROR(CheckRow(row));
  for (size_t i = 0; states_.used() && i < rows_.size(); ++i) {
    const bool first = i == 0 || rows_[i].slot != rows_[i - 1].slot;
    const uint32_t expected = first ? states_.Position(rows_[i].slot) : rows_[i - 1].position + 1;
    if (rows_[i].position != expected) {
      return Error(Reason::kInternal, fmt::format("position {} of slot {}, whose state wants {}", rows_[i].position,
                                                  rows_[i].slot, expected));
    }
  }
  return absl::OkStatus();
}

void ForwardPass::PrepareTables() {
  workspace_.ids.clear();
  for (const Row& row : rows_) workspace_.ids.push_back(static_cast<uint32_t>(row.token));
  workspace_.spans.clear();
  for (uint32_t i = 0; i < count_; ++i) {
    if (i == 0 || rows_[i].slot != rows_[i - 1].slot) {
      workspace_.spans.push_back({{}, i, 0, rows_[i].position});
    }
    ++workspace_.spans.back().tokens;
  }
  PrepareRotation();
}

void ForwardPass::PrepareRotation() {
  workspace_.rope_rows.clear();
  const uint32_t pairs = config_.rope_dimensions / 2;
  float* table = workspace_.at(workspace_.layout().rope);
  for (uint32_t i = 0; i < count_; ++i) {
    workspace_.rope_rows.push_back(i);
    float* cosines = table + uint64_t{i} * config_.rope_dimensions;
    for (uint32_t pair = 0; pair < pairs; ++pair) {
      const double angle = rows_[i].position * model_.rope_frequencies_[pair];
      cosines[pair] = static_cast<float>(std::cos(angle));
      cosines[pairs + pair] = static_cast<float>(std::sin(angle));
    }
  }
}

void ForwardPass::CommitStates() {
  if (!states_.used()) return;
  for (const auto& span : workspace_.spans) states_.Commit(rows_[span.first_token].slot, span.tokens);
}

void ForwardPass::Norm(const Rows& x, const std::vector<float>& weight, const Rows& out) const {
  compute_.RmsNorm(Const(x), weight.data(), config_.norm_epsilon, out);
}

void ForwardPass::AddToResidual(const Rows& x) const {
  compute_.AddScaled(Const(x), config_.residual_scale, residual_);
}

void ForwardPass::Logits() const {
  uint32_t wanted = 0;
  float* inputs = workspace_.logit_inputs();
  for (uint32_t i = 0; i < count_; ++i) {
    if (!rows_[i].wants_logits) continue;
    std::memcpy(inputs + uint64_t{wanted} * config_.embedding, residual_.data + i * residual_.stride,
                config_.embedding * sizeof(float));
    ++wanted;
  }
  if (wanted == 0) return;
  const Rows last{inputs, config_.embedding, wanted, config_.embedding};
  Norm(last, model_.output_norm_, last);
  const Rows logits{workspace_.logits(), config_.vocabulary, wanted, config_.vocabulary};
  MultiplyPrecisely(last, {{&model_.output_, &logits}});
  if (config_.logit_divisor != 1) compute_.Scale(logits, 1.0F / config_.logit_divisor);
}

absl::Status Model::Forward(std::span<const Row> rows, const ForwardState& state) const {
  return ForwardPass(*this, rows, state).Run();
}

}  // namespace bulkhead::engine
