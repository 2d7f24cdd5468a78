// One forward over all layers for rows of several sequences: Model::Forward's workings, cut by concept into
// forward*.cc. Lives for one call; every buffer is the workspace's.
#pragma once

#include <initializer_list>
#include <span>
#include <utility>

#include "engine/model/model.h"

namespace bulkhead::engine {

class ForwardPass {
 public:
  ForwardPass(const Model& model, std::span<const Row> rows, const ForwardState& state);

  absl::Status Run();

 private:
  using Product = std::pair<const kernels::WeightMatrix*, const kernels::Rows*>;

  [[nodiscard]] kernels::Rows Buffer(uint64_t offset, uint32_t width) const {
    return {workspace_.at(offset), width, count_, width};
  }
  // Columns [first, first + count) of `rows`.
  static kernels::Rows Columns(const kernels::Rows& rows, size_t first, uint32_t count) {
    return {rows.data + first, rows.stride, rows.tokens, count};
  }
  static kernels::ConstRows Const(const kernels::Rows& rows) {
    return {rows.data, rows.stride, rows.tokens, rows.count};
  }

  // forward.cc
  [[nodiscard]] absl::Status CheckRows() const;
  [[nodiscard]] absl::Status CheckRow(const Row& row) const;
  void PrepareTables();
  void PrepareRotation();
  void CommitStates();
  void Logits() const;
  void Norm(const kernels::Rows& x, const std::vector<float>& weight, const kernels::Rows& out) const;
  void AddToResidual(const kernels::Rows& x) const;

  // forward_products.cc
  static bool WantsQuantised(const kernels::WeightMatrix& weights);
  // out = weights * x for up to four matrices that share their input, in one dispatch.
  void Multiply(const kernels::Rows& x, std::initializer_list<Product> products) const;
  // The same, with what one int8 plane loses of x as a second one: out = W q(x) + W q(x - q(x)). The weights are still
  // read once. Queries, keys, values, what recurrent layers mix, and logits want it to be no less exact than the peer
  // (docs/decisions.md). x and every out have room for as many rows again behind theirs.
  void MultiplyPrecisely(const kernels::Rows& x, std::initializer_list<Product> products) const;

  // forward_attention.cc
  void Attend(const Model::Layer& layer);
  void Project(const Model::Layer& layer) const;
  void PointAtPages(uint32_t layer);
  void NormHeads(const kernels::Rows& x, uint32_t heads, const std::vector<float>& weight) const;
  void SplitGates() const;
  void Spread(const kernels::Rows& x, uint32_t heads) const;
  void Gather(const kernels::Rows& x, uint32_t heads) const;

  // forward_recurrent.cc
  void Mix(const Model::Layer& layer);
  void MixMamba2(const Model::Layer& layer);
  void MixShortConv(const Model::Layer& layer);
  void MixDeltaNet(const Model::Layer& layer);
  void PointAtStates(const Model::Layer& layer, uint64_t offset);
  void Convolve(const Model::Layer& layer, const kernels::Rows& x, bool silu);
  void GatesOfDelta(const Model::Layer& layer, kernels::Rows& beta, kernels::Rows& keep) const;

  // forward_experts.cc
  void FeedForward(const Model::Layer& layer);
  void GatedUnit(const Model::Layer::GatedUnit& unit, const kernels::Rows& out) const;
  void Mixture(const Model::Layer& layer);
  void Route(const Model::Layer& layer);
  void RunExperts(const Model::Layer& layer, std::span<const ExpertPair> pairs, const kernels::Rows& sum) const;
  void MultiplyByExpert(std::span<const ExpertPair> pairs, const kernels::Rows& x,
                        std::initializer_list<Product> products) const;
  void AddShared(const Model::Layer& layer, const kernels::Rows& sum) const;

  const Model& model_;
  const ModelConfig& config_;
  std::span<const Row> rows_;
  uint32_t count_;
  uint32_t head_;
  KvPool& kv_;
  StatePool& states_;
  Workspace& workspace_;
  const kernels::Compute& compute_;
  const StopCheck& stop_;
  std::atomic<uint64_t>& progress_;
  kernels::Rows residual_, normed_, query_, key_, value_, attention_;
};

}  // namespace bulkhead::engine
