// Matrices times rows, in one int8 plane or two.
#include <algorithm>
#include <array>

#include "engine/model/forward_pass.h"

namespace bulkhead::engine {

using kernels::ConstRows;
using kernels::MatMulTask;
using kernels::Rows;
using kernels::WeightMatrix;

namespace {

// Behind x, what its quantised form lacks.
void StoreRemainders(const Rows& x, const kernels::Activations& quantised) {
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

}  // namespace

bool ForwardPass::WantsQuantised(const WeightMatrix& weights) {
  return kernels::InfoOf(weights.type).activation == kernels::ActivationFormat::kQ8Group32;
}

void ForwardPass::Multiply(const Rows& x, std::initializer_list<Product> products) const {
  bool quantise = false;
  for (const auto& [weights, out] : products) quantise |= WantsQuantised(*weights);
  const kernels::Activations input = compute_.Prepare(Const(x), quantise, workspace_.activations());
  std::array<MatMulTask, 4> tasks;
  size_t count = 0;
  for (const auto& [weights, out] : products) tasks[count++] = {*weights, input, out->data, out->stride};
  compute_.MatMul(std::span(tasks.data(), count));
}

void ForwardPass::MultiplyPrecisely(const Rows& x, std::initializer_list<Product> products) const {
  const bool quantise =
      std::any_of(products.begin(), products.end(), [](const auto& product) { return WantsQuantised(*product.first); });
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

}  // namespace bulkhead::engine
