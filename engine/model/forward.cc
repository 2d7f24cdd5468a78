// Model::Forward: one pass over all layers for rows of several sequences.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "engine/model/model.h"

namespace bulkhead::engine {

using kernels::ConstRows;
using kernels::MatMulTask;
using kernels::Rows;
using kernels::WeightMatrix;

class ForwardPass {
 public:
  ForwardPass(const Model& model, std::span<const Row> rows, const ForwardState& state)
      : model_(model),
        config_(model.config_),
        rows_(rows),
        count_(static_cast<uint32_t>(rows.size())),
        head_(config_.padded_head_size()),
        kv_(state.kv),
        workspace_(state.workspace),
        compute_(state.compute),
        stop_(state.stop),
        progress_(state.progress),
        residual_(Buffer(workspace_.layout().residual, config_.embedding)),
        normed_(Buffer(workspace_.layout().normed, config_.embedding)),
        query_(Buffer(workspace_.layout().query, config_.heads * head_)),
        key_(Buffer(workspace_.layout().key, config_.kv_heads * head_)),
        value_(Buffer(workspace_.layout().value, config_.kv_heads * head_)),
        attention_(Buffer(workspace_.layout().attention, config_.heads * head_)),
        gate_(Buffer(workspace_.layout().gate, config_.feed_forward)),
        up_(Buffer(workspace_.layout().up, config_.feed_forward)) {}

  absl::Status Run() {
    RETURN_IF_ERROR(CheckRows());
    PrepareTables();
    compute_.EmbeddingLookup(model_.embedding_, workspace_.ids.data(), residual_);
    for (uint32_t layer = 0; layer < config_.layers; ++layer) {
      if (stop_ && stop_()) return Error(Reason::kCancelled, "forward given up");
      Attend(layer);
      FeedForward(model_.layers_[layer]);
      progress_.fetch_add(1, std::memory_order_relaxed);
    }
    Logits();
    return absl::OkStatus();
  }

 private:
  [[nodiscard]] Rows Buffer(uint64_t offset, uint32_t width) const {
    return {workspace_.at(offset), width, count_, width};
  }

  static ConstRows Const(const Rows& rows) { return {rows.data, rows.stride, rows.tokens, rows.count}; }

  [[nodiscard]] absl::Status CheckRows() const {
    const auto wanted = std::count_if(rows_.begin(), rows_.end(), [](const Row& row) { return row.wants_logits; });
    if (rows_.empty() || rows_.size() > workspace_.forward_rows() || wanted > workspace_.logit_rows()) {
      return Error(Reason::kInternal, fmt::format("forward of {} rows with {} logits, at most {} with {}", rows_.size(),
                                                  wanted, workspace_.forward_rows(), workspace_.logit_rows()));
    }
    for (const Row& row : rows_) {
      if (row.token < 0 || static_cast<uint32_t>(row.token) >= config_.vocabulary) {
        return Error(Reason::kInternal,
                     fmt::format("token {} is outside the vocabulary of {}", row.token, config_.vocabulary));
      }
      if (row.position / kPagePositions >= kv_.Table(row.slot).size()) {
        return Error(Reason::kInternal, fmt::format("position {} of slot {} has no page", row.position, row.slot));
      }
    }
    return absl::OkStatus();
  }

  void PrepareTables() {
    workspace_.ids.clear();
    workspace_.rope_rows.clear();
    const uint32_t pairs = config_.rope_dimensions / 2;
    float* table = workspace_.at(workspace_.layout().rope);
    for (uint32_t i = 0; i < count_; ++i) {
      workspace_.ids.push_back(static_cast<uint32_t>(rows_[i].token));
      workspace_.rope_rows.push_back(i);
      float* cosines = table + uint64_t{i} * config_.rope_dimensions;
      for (uint32_t pair = 0; pair < pairs; ++pair) {
        const double angle = rows_[i].position * model_.rope_frequencies_[pair];
        cosines[pair] = static_cast<float>(std::cos(angle));
        cosines[pairs + pair] = static_cast<float>(std::sin(angle));
      }
    }
    workspace_.spans.clear();
    for (uint32_t i = 0; i < count_; ++i) {
      if (i == 0 || rows_[i].slot != rows_[i - 1].slot) {
        workspace_.spans.push_back({{}, i, 0, rows_[i].position});
      }
      ++workspace_.spans.back().tokens;
    }
  }

  // Where this layer's keys and values stand: a pointer for each page of each sequence, and for each row's own.
  void PointAtPages(uint32_t layer) {
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

  static bool WantsQuantised(const WeightMatrix& weights) {
    return kernels::InfoOf(weights.type).activation == kernels::ActivationFormat::kQ8Group32;
  }

  // out = weights * x for up to three matrices that share their input, in one dispatch.
  void Multiply(const Rows& x, std::initializer_list<std::pair<const WeightMatrix*, const Rows*>> products) const {
    bool quantise = false;
    for (const auto& [weights, out] : products) quantise |= WantsQuantised(*weights);
    const kernels::Activations input = compute_.Prepare(Const(x), quantise, workspace_.activations());
    std::array<MatMulTask, 3> tasks;
    size_t count = 0;
    for (const auto& [weights, out] : products) tasks[count++] = {*weights, input, out->data, out->stride};
    compute_.MatMul(std::span(tasks.data(), count));
  }

  // The same, with what one int8 plane loses of x as a second one: out = W q(x) + W q(x - q(x)). The weights are still
  // read once. Queries, keys, values and logits want it to be no less exact than the peer (docs/decisions.md). x and
  // every out have room for as many rows again behind theirs.
  void MultiplyPrecisely(const Rows& x,
                         std::initializer_list<std::pair<const WeightMatrix*, const Rows*>> products) const {
    const bool quantise = std::any_of(products.begin(), products.end(),
                                      [](const auto& product) { return WantsQuantised(*product.first); });
    if (!quantise) return Multiply(x, products);
    StoreRemainders(x, compute_.Prepare(Const(x), true, workspace_.activations()));
    Rows planes = x;
    planes.tokens *= 2;
    Multiply(planes, products);
    for (const auto& [weights, out] : products) {
      const ConstRows second{out->data + out->tokens * out->stride, out->stride, out->tokens, weights->rows};
      Rows first = *out;
      first.count = weights->rows;
      compute_.AddScaled(second, 1.0F, first);
    }
  }

  // Behind x, what its quantised form lacks.
  static void StoreRemainders(const Rows& x, const kernels::Activations& quantised) {
    const uint32_t groups = x.count / kernels::kActivationGroup;
    for (size_t token = 0; token < x.tokens; ++token) {
      const float* from = x.data + token * x.stride;
      float* to = x.data + (x.tokens + token) * x.stride;
      const int8_t* plane = quantised.q8 + token * x.count;
      for (size_t group = 0; group < groups; ++group) {
        const float scale = quantised.q8_scale[token * groups + group];
        for (size_t k = group * kernels::kActivationGroup; k < (group + 1) * kernels::kActivationGroup; ++k) {
          to[k] = from[k] - scale * static_cast<float>(plane[k]);
        }
      }
    }
  }

  void Norm(const Rows& x, const std::vector<float>& weight, const Rows& out) const {
    compute_.RmsNorm(Const(x), weight.data(), config_.norm_epsilon, out);
  }

  void NormHeads(const Rows& x, uint32_t heads, const std::vector<float>& weight) const {
    if (weight.empty()) return;
    const Rows by_head{x.data, head_, x.tokens * heads, config_.head_size};
    Norm(by_head, weight, by_head);
  }

  // Heads stand head_size apart after a product and padded apart in attention; the padding is zeros.
  void Spread(const Rows& x, uint32_t heads) const {
    if (head_ == config_.head_size) return;
    for (uint32_t token = 0; token < x.tokens; ++token) {
      float* row = x.data + token * x.stride;
      for (uint32_t head = heads; head-- > 0;) {
        std::memmove(row + head * head_, row + head * config_.head_size, config_.head_size * sizeof(float));
        std::fill(row + head * head_ + config_.head_size, row + (head + 1) * head_, 0.0F);
      }
    }
  }
  void Gather(const Rows& x, uint32_t heads) const {
    if (head_ == config_.head_size) return;
    for (uint32_t token = 0; token < x.tokens; ++token) {
      float* row = x.data + token * x.stride;
      for (uint32_t head = 0; head < heads; ++head) {
        std::memmove(row + head * config_.head_size, row + head * head_, config_.head_size * sizeof(float));
      }
    }
  }

  void Attend(uint32_t index) {
    const Model::Layer& layer = model_.layers_[index];
    Norm(residual_, layer.attention_norm, normed_);
    MultiplyPrecisely(normed_, {{&layer.query, &query_}, {&layer.key, &key_}, {&layer.value, &value_}});
    Spread(query_, config_.heads);
    Spread(key_, config_.kv_heads);
    Spread(value_, config_.kv_heads);
    NormHeads(query_, config_.heads, layer.query_norm);
    NormHeads(key_, config_.kv_heads, layer.key_norm);
    const kernels::RopeTable rope{workspace_.at(workspace_.layout().rope), workspace_.rope_rows.data(),
                                  config_.rope_dimensions, config_.rope_pairing};
    compute_.Rope(query_, config_.heads, head_, rope);
    compute_.Rope(key_, config_.kv_heads, head_, rope);
    PointAtPages(index);
    compute_.StoreKv(Const(key_), head_, kv_.type(), kv_.head_stride(), workspace_.key_destinations.data());
    compute_.StoreKv(Const(value_), head_, kv_.type(), kv_.head_stride(), workspace_.value_destinations.data());
    const float scale = 1.0F / std::sqrt(static_cast<float>(config_.head_size));
    compute_.Attention({config_.heads, config_.kv_heads, head_, 0, scale}, workspace_.spans, Const(query_), attention_);
    Gather(attention_, config_.heads);
    Rows input = attention_;
    input.count = config_.heads * config_.head_size;
    Multiply(input, {{&layer.output, &normed_}});
    compute_.AddScaled(Const(normed_), 1.0F, residual_);
  }

  void FeedForward(const Model::Layer& layer) const {
    Norm(residual_, layer.feed_forward_norm, normed_);
    Multiply(normed_, {{&layer.gate, &gate_}, {&layer.up, &up_}});
    compute_.SiluMul(Const(gate_), Const(up_), gate_);
    Multiply(gate_, {{&layer.down, &normed_}});
    compute_.AddScaled(Const(normed_), 1.0F, residual_);
  }

  void Logits() const {
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
  }

  const Model& model_;
  const ModelConfig& config_;
  std::span<const Row> rows_;
  uint32_t count_;
  uint32_t head_;
  KvPool& kv_;
  Workspace& workspace_;
  const kernels::Compute& compute_;
  const StopCheck& stop_;
  std::atomic<uint64_t>& progress_;
  Rows residual_, normed_, query_, key_, value_, attention_, gate_, up_;
};

absl::Status Model::Forward(std::span<const Row> rows, const ForwardState& state) const {
  return ForwardPass(*this, rows, state).Run();
}

}  // namespace bulkhead::engine
