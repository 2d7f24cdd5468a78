// Layers that carry a state along: Mamba2, LFM2's short convolution, the gated delta net. The formulas and their order
// of rounding stand in docs/numerics.md, their sources in model_config.h.
#include <cmath>

#include "engine/model/forward_pass.h"

namespace bulkhead::engine {

using kernels::ConstRows;
using kernels::Rows;

void ForwardPass::Mix(const Model::Layer& layer) {
  switch (layer.kind) {
    case LayerKind::kAttention:
      return;
    case LayerKind::kMamba2:
      return MixMamba2(layer);
    case LayerKind::kShortConv:
      return MixShortConv(layer);
    case LayerKind::kDeltaNet:
      return MixDeltaNet(layer);
  }
}

// The layer's state of each span's sequence, `offset` floats into it.
void ForwardPass::PointAtStates(const Model::Layer& layer, uint64_t offset) {
  workspace_.states.clear();
  for (const auto& span : workspace_.spans) {
    const uint32_t slot = rows_[span.first_token].slot;
    workspace_.states.push_back({states_.Current(slot) + layer.state_offset + offset,
                                 states_.Next(slot) + layer.state_offset + offset, span.first_token, span.tokens});
  }
}

void ForwardPass::Convolve(const Model::Layer& layer, const Rows& x, bool silu) {
  PointAtStates(layer, 0);
  const Model::Layer::Recurrent& parts = layer.recurrent;
  compute_.Convolve({.weights = parts.taps.data(),
                     .bias = parts.taps_bias.empty() ? nullptr : parts.taps_bias.data(),
                     .taps = config_.recurrent.taps,
                     .channels = x.count,
                     .silu = silu},
                    workspace_.states, Const(x), Buffer(workspace_.layout().convolved, x.count));
  PointAtStates(layer, config_.conv_state_floats(layer.kind));
}

// in -> [z | x B C | step]; x, B, C through the convolution; the scan; gated by z, normalised by group.
void ForwardPass::MixMamba2(const Model::Layer& layer) {
  const RecurrentShape& shape = config_.recurrent;
  const Model::Layer::Recurrent& parts = layer.recurrent;
  const uint32_t channels = config_.conv_channels(layer.kind);
  const uint32_t bc = shape.groups * shape.state;
  const Rows projected = Buffer(workspace_.layout().projected, config_.projected(layer.kind));
  MultiplyPrecisely(normed_, {{&parts.in, &projected}});
  const Rows z = Columns(projected, 0, shape.inner);
  const Rows step = Columns(projected, size_t{shape.inner} + channels, shape.heads);
  Convolve(layer, Columns(projected, shape.inner, channels), true);
  compute_.Softplus(step, parts.step_bias.data());
  const Rows convolved = Buffer(workspace_.layout().convolved, channels);
  const Rows inner = Buffer(workspace_.layout().inner, shape.inner);
  compute_.Scan({.heads = shape.heads,
                 .rows = shape.inner_head(),
                 .columns = shape.state,
                 .groups = shape.groups,
                 .tiled = false},
                workspace_.states, Const(Columns(convolved, 0, shape.inner)),
                Const(Columns(convolved, shape.inner, bc)), Const(Columns(convolved, size_t{shape.inner} + bc, bc)),
                Const(step), parts.decay.data(), parts.skip.data(), inner);
  compute_.SiluMul(Const(z), Const(inner), inner);
  const uint32_t group = shape.inner / shape.groups;
  for (uint32_t g = 0; g < shape.groups; ++g) {
    const Rows part = Columns(inner, size_t{g} * group, group);
    compute_.RmsNorm(Const(part), parts.norm.data() + size_t{g} * group, config_.norm_epsilon, part);
  }
  Multiply(inner, {{&parts.out, &normed_}});
  AddToResidual(normed_);
}

// in -> [b | c | x]; c * convolution of b * x.
void ForwardPass::MixShortConv(const Model::Layer& layer) {
  const uint32_t width = config_.embedding;
  const Rows projected = Buffer(workspace_.layout().projected, config_.projected(layer.kind));
  MultiplyPrecisely(normed_, {{&layer.recurrent.in, &projected}});
  const Rows b = Columns(projected, 0, width);
  const Rows c = Columns(projected, width, width);
  compute_.Multiply(Const(b), Const(Columns(projected, size_t{2} * width, width)), b);
  Convolve(layer, b, false);
  const Rows convolved = Buffer(workspace_.layout().convolved, width);
  compute_.Multiply(Const(c), Const(convolved), convolved);
  Multiply(convolved, {{&layer.recurrent.out, &normed_}});
  AddToResidual(normed_);
}

// beta = sigmoid(b), keep = exp(softplus(a + bias) * decay). Where one matrix gives both, it gives them by key head.
void ForwardPass::GatesOfDelta(const Model::Layer& layer, Rows& beta, Rows& keep) const {
  const RecurrentShape& shape = config_.recurrent;
  const Model::Layer::Recurrent& parts = layer.recurrent;
  if (parts.joint_gates) {
    const uint32_t each = shape.heads / shape.groups;
    const float* joint = workspace_.at(workspace_.layout().joint_gates);
    for (size_t token = 0; token < count_; ++token) {
      for (uint32_t head = 0; head < shape.heads; ++head) {
        const size_t from = token * 2 * shape.heads + size_t{head / each} * 2 * each + head % each;
        beta.data[token * beta.stride + head] = joint[from];
        keep.data[token * keep.stride + head] = joint[from + each];
      }
    }
  }
  compute_.Sigmoid(beta);
  compute_.Softplus(keep, parts.step_bias.data());
  compute_.ExpOfProducts(keep, parts.decay.data());
}

// in -> [q | k | v] through the convolution; q and k to unit length; the delta rule; normalised by head, gated by z.
void ForwardPass::MixDeltaNet(const Model::Layer& layer) {
  const RecurrentShape& shape = config_.recurrent;
  const Model::Layer::Recurrent& parts = layer.recurrent;
  const uint32_t keys = shape.groups * shape.state;
  const Rows projected = Buffer(workspace_.layout().projected, config_.projected(layer.kind));
  const Rows z = Buffer(workspace_.layout().inner_gate, shape.inner);
  Rows beta = Buffer(workspace_.layout().beta, shape.heads);
  Rows keep = Buffer(workspace_.layout().keep, shape.heads);
  const Rows joint = Buffer(workspace_.layout().joint_gates, 2 * shape.heads);
  if (parts.joint_gates) {
    MultiplyPrecisely(normed_, {{&parts.in, &projected}, {&parts.gate, &z}, {&parts.beta, &joint}});
  } else {
    MultiplyPrecisely(normed_,
                      {{&parts.in, &projected}, {&parts.gate, &z}, {&parts.beta, &beta}, {&parts.alpha, &keep}});
  }
  GatesOfDelta(layer, beta, keep);
  Convolve(layer, projected, true);
  const Rows convolved = Buffer(workspace_.layout().convolved, projected.count);
  const Rows q = Columns(convolved, 0, keys);
  const Rows k = Columns(convolved, keys, keys);
  for (uint32_t head = 0; head < shape.groups; ++head) {
    const size_t first = size_t{head} * shape.state;
    compute_.UnitNorm(Columns(q, first, shape.state), config_.norm_epsilon,
                      1.0F / std::sqrt(static_cast<float>(shape.state)));
    compute_.UnitNorm(Columns(k, first, shape.state), config_.norm_epsilon, 1.0F);
  }
  const Rows inner = Buffer(workspace_.layout().inner, shape.inner);
  compute_.DeltaScan({.heads = shape.heads,
                      .rows = shape.inner_head(),
                      .columns = shape.state,
                      .groups = shape.groups,
                      .tiled = shape.tiled_heads},
                     workspace_.states, Const(q), Const(k), Const(Columns(convolved, size_t{2} * keys, shape.inner)),
                     Const(keep), Const(beta), inner);
  const Rows by_head{inner.data, shape.inner_head(), inner.tokens * shape.heads, shape.inner_head()};
  Norm(by_head, parts.norm, by_head);
  compute_.SiluMul(Const(z), Const(inner), inner);
  Multiply(inner, {{&parts.out, &normed_}});
  AddToResidual(normed_);
}

}  // namespace bulkhead::engine
