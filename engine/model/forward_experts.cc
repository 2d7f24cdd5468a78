// Feed-forward parts: one gated unit, or a mixture of which a router gives each token some.
//
// A token's experts are added up by ascending id, whatever else is in the batch: tokens are gathered by expert, and
// each expert's weights are read once for all its tokens.
#include <algorithm>
#include <cstring>

#include "engine/model/forward_pass.h"

namespace bulkhead::engine {

using kernels::Activations;
using kernels::ConstRows;
using kernels::Rows;
using kernels::WeightMatrix;

namespace {

// Tokens [first, first + count) of prepared activations.
Activations Part(const Activations& x, size_t first, uint32_t count) {
  Activations part = x;
  part.tokens = count;
  part.f32 += first * x.f32_stride;
  if (x.q8 == nullptr) return part;
  const size_t groups = x.cols / kernels::kActivationGroup;
  part.q8 += first * x.cols;
  part.q8_scale += first * groups;
  part.q8_sum += first * groups;
  return part;
}

// One expert's rows of a matrix that holds all of them.
WeightMatrix ExpertOf(const WeightMatrix& all, uint32_t expert, uint32_t experts) {
  WeightMatrix one = all;
  one.rows = all.rows / experts;
  one.data = static_cast<const std::byte*>(all.data) + size_t{expert} * one.rows * one.row_bytes;
  return one;
}

}  // namespace

void ForwardPass::FeedForward(const Model::Layer& layer) {
  if (layer.feed_forward_norm.empty()) return;
  Norm(residual_, layer.feed_forward_norm, normed_);
  if (config_.mixture.experts != 0) return Mixture(layer);
  GatedUnit(layer.feed_forward, normed_);
  AddToResidual(normed_);
}

// out = down * (silu(gate * normed) * (up * normed)); out may be normed_.
void ForwardPass::GatedUnit(const Model::Layer::GatedUnit& unit, const Rows& out) const {
  const Rows gate = Buffer(workspace_.layout().gate, unit.gate.rows);
  const Rows up = Buffer(workspace_.layout().up, unit.up.rows);
  Multiply(normed_, {{&unit.gate, &gate}, {&unit.up, &up}});
  compute_.SiluMul(Const(gate), Const(up), gate);
  Multiply(gate, {{&unit.down, &out}});
}

// Softmax over all experts, the best `used` of each token (of equals the lower id), their weights made to sum to 1.
void ForwardPass::Route(const Model::Layer& layer) {
  const MixtureShape& shape = config_.mixture;
  const Rows scores = Buffer(workspace_.layout().router, shape.experts);
  Multiply(normed_, {{&layer.mixture.router, &scores}});
  auto& pairs = workspace_.expert_pairs;
  auto& order = workspace_.expert_order;
  pairs.clear();
  for (uint32_t token = 0; token < count_; ++token) {
    float* row = scores.data + token * scores.stride;
    compute_.kernels().softmax(row, 1.0F, shape.experts, row);
    order.resize(shape.experts);
    for (uint32_t expert = 0; expert < shape.experts; ++expert) order[expert] = expert;
    std::partial_sort(order.begin(), order.begin() + shape.used, order.end(),
                      [row](uint32_t a, uint32_t b) { return row[a] > row[b] || (!(row[b] > row[a]) && a < b); });
    std::sort(order.begin(), order.begin() + shape.used);
    float sum = 0;
    for (uint32_t i = 0; i < shape.used; ++i) sum += row[order[i]];
    for (uint32_t i = 0; i < shape.used; ++i) pairs.push_back({order[i], token, row[order[i]] / sum});
  }
  std::sort(pairs.begin(), pairs.end(), [](const ExpertPair& a, const ExpertPair& b) {
    return a.expert != b.expert ? a.expert < b.expert : a.token < b.token;
  });
}

void ForwardPass::Mixture(const Model::Layer& layer) {
  Route(layer);
  const Rows sum = Buffer(workspace_.layout().mixture, config_.embedding);
  std::fill_n(sum.data, size_t{count_} * config_.embedding, 0.0F);
  // Whole experts, as many as the buffers hold tokens for; one expert's never exceed them.
  const auto& pairs = workspace_.expert_pairs;
  for (size_t first = 0; first < pairs.size();) {
    size_t end = first;
    for (size_t next = first; next < pairs.size() && next - first < workspace_.forward_rows();) {
      while (next < pairs.size() && pairs[next].expert == pairs[end].expert) ++next;
      if (next - first > workspace_.forward_rows()) break;
      end = next;
    }
    RunExperts(layer, std::span(pairs).subspan(first, end - first), sum);
    first = end;
  }
  AddShared(layer, sum);
  AddToResidual(sum);
}

void ForwardPass::RunExperts(const Model::Layer& layer, std::span<const ExpertPair> pairs, const Rows& sum) const {
  const Model::Layer::GatedUnit& experts = layer.mixture.experts;
  const uint32_t width = config_.mixture.feed_forward;
  const auto count = static_cast<uint32_t>(pairs.size());
  const Rows input{workspace_.at(workspace_.layout().expert_input), config_.embedding, count, config_.embedding};
  const Rows gate{workspace_.at(workspace_.layout().gate), width, count, width};
  const Rows up{workspace_.at(workspace_.layout().up), width, count, width};
  for (size_t i = 0; i < pairs.size(); ++i) {
    std::memcpy(input.data + i * input.stride, normed_.data + pairs[i].token * normed_.stride,
                config_.embedding * sizeof(float));
  }
  MultiplyByExpert(pairs, input, {{&experts.gate, &gate}, {&experts.up, &up}});
  compute_.SiluMul(Const(gate), Const(up), gate);
  MultiplyByExpert(pairs, gate, {{&experts.down, &input}});
  for (size_t i = 0; i < pairs.size(); ++i) {
    compute_.kernels().add_scaled(input.data + i * input.stride, pairs[i].weight, config_.embedding,
                                  sum.data + pairs[i].token * sum.stride);
  }
}

// Row i of every out = its pair's expert's matrix * row i of x.
void ForwardPass::MultiplyByExpert(std::span<const ExpertPair> pairs, const Rows& x,
                                   std::initializer_list<Product> products) const {
  bool quantise = false;
  for (const auto& [weights, out] : products) quantise |= WantsQuantised(*weights);
  const Activations all = compute_.Prepare(Const(x), quantise, workspace_.activations());
  workspace_.expert_tasks.clear();
  for (size_t first = 0; first < pairs.size();) {
    size_t end = first;
    while (end < pairs.size() && pairs[end].expert == pairs[first].expert) ++end;
    for (const auto& [weights, out] : products) {
      workspace_.expert_tasks.push_back({ExpertOf(*weights, pairs[first].expert, config_.mixture.experts),
                                         Part(all, first, static_cast<uint32_t>(end - first)),
                                         out->data + first * out->stride, out->stride});
    }
    first = end;
  }
  compute_.MatMul(workspace_.expert_tasks);
}

void ForwardPass::AddShared(const Model::Layer& layer, const Rows& sum) const {
  if (config_.mixture.shared_feed_forward == 0) return;
  const Rows gates = Buffer(workspace_.layout().router, 1);
  if (config_.mixture.gated_shared) {
    Multiply(normed_, {{&layer.mixture.shared_gate, &gates}});
    compute_.Sigmoid(gates);
  }
  GatedUnit(layer.mixture.shared, normed_);
  if (!config_.mixture.gated_shared) return compute_.AddScaled(Const(normed_), 1.0F, sum);
  for (size_t token = 0; token < count_; ++token) {
    compute_.kernels().add_scaled(normed_.data + token * normed_.stride, gates.data[token], config_.embedding,
                                  sum.data + token * sum.stride);
  }
}

}  // namespace bulkhead::engine
