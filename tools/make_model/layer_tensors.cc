#include "tools/make_model/layer_tensors.h"

#include <fmt/format.h>

namespace bulkhead::tools {
namespace {

using engine::WeightType;

class LayerMaker {
 public:
  LayerMaker(const ModelSpec& spec, uint32_t layer, std::vector<TensorSpec>& tensors)
      : spec_(spec), layer_(layer), tensors_(tensors), width_(spec.embedding) {}

  void Make() {
    Plain("attn_norm.weight", {width_}, Values::kNorm);
    if (Attends(spec_, layer_)) {
      MakeAttention();
    } else if (spec_.architecture == "lfm2") {
      MakeShortConv();
    } else if (DeltaNet()) {
      MakeDeltaNet();
    } else {
      MakeMamba2();
    }
    if (spec_.architecture != "mamba2") MakeFeedForward();
  }

 private:
  [[nodiscard]] bool DeltaNet() const { return spec_.architecture == "qwen35" || spec_.architecture == "qwen3next"; }
  [[nodiscard]] uint64_t Channels() const { return spec_.inner + 2 * uint64_t{spec_.state_groups} * spec_.state; }

  void Matrix(std::string_view part, std::vector<uint64_t> dims) {
    tensors_.push_back({fmt::format("blk.{}.{}.weight", layer_, part), std::move(dims), spec_.type, Values::kWeights});
  }
  // What stays F32 in every file.
  void Plain(std::string_view part, std::vector<uint64_t> dims, Values values) {
    tensors_.push_back({fmt::format("blk.{}.{}", layer_, part), std::move(dims), WeightType::kF32, values});
  }

  void MakeAttention() {
    const uint64_t q = uint64_t{spec_.heads} * spec_.head;
    const uint64_t kv = uint64_t{spec_.kv_heads} * spec_.head;
    Matrix("attn_q", {width_, DeltaNet() ? 2 * q : q});
    Matrix("attn_k", {width_, kv});
    Matrix("attn_v", {width_, kv});
    if (spec_.architecture != "llama" && spec_.architecture != "granitehybrid") {
      Plain("attn_q_norm.weight", {spec_.head}, Values::kNorm);
      Plain("attn_k_norm.weight", {spec_.head}, Values::kNorm);
    }
    Matrix("attn_output", {q, width_});
  }

  void MakeShortConv() {
    Plain("shortconv.conv.weight", {spec_.taps, width_}, Values::kWeights);
    Matrix("shortconv.in_proj", {width_, 3 * width_});
    Matrix("shortconv.out_proj", {width_, width_});
  }

  void MakeMamba2() {
    Matrix("ssm_in", {width_, spec_.inner + Channels() + spec_.state_heads});
    Plain("ssm_conv1d.weight", {spec_.taps, Channels()}, Values::kWeights);
    Plain("ssm_conv1d.bias", {Channels()}, Values::kWeights);
    Plain("ssm_dt.bias", {spec_.state_heads}, Values::kWeights);
    Plain("ssm_a", {1, spec_.state_heads}, Values::kDecay);
    Plain("ssm_d", {1, spec_.state_heads}, Values::kNorm);
    Plain("ssm_norm.weight", {spec_.inner / spec_.state_groups, spec_.state_groups}, Values::kNorm);
    Matrix("ssm_out", {spec_.inner, width_});
  }

  void MakeDeltaNet() {
    Matrix("attn_qkv", {width_, Channels()});
    Matrix("attn_gate", {width_, spec_.inner});
    Plain("ssm_conv1d.weight", {spec_.taps, Channels()}, Values::kWeights);
    Plain("ssm_dt.bias", {spec_.state_heads}, Values::kWeights);
    Plain("ssm_a", {spec_.state_heads}, Values::kDecay);
    if (spec_.architecture == "qwen35") {
      Matrix("ssm_beta", {width_, spec_.state_heads});
      Matrix("ssm_alpha", {width_, spec_.state_heads});
    } else {
      Matrix("ssm_ba", {width_, 2 * uint64_t{spec_.state_heads}});
    }
    Plain("ssm_norm.weight", {spec_.inner / spec_.state_heads}, Values::kNorm);
    Matrix("ssm_out", {spec_.inner, width_});
  }

  void MakeUnit(std::string_view suffix, bool experts) {
    const auto dims = [&](uint64_t cols, uint64_t rows) {
      return experts ? std::vector<uint64_t>{cols, rows, spec_.experts} : std::vector<uint64_t>{cols, rows};
    };
    Matrix(fmt::format("ffn_gate{}", suffix), dims(width_, spec_.feed_forward));
    Matrix(fmt::format("ffn_up{}", suffix), dims(width_, spec_.feed_forward));
    Matrix(fmt::format("ffn_down{}", suffix), dims(spec_.feed_forward, width_));
  }

  void MakeFeedForward() {
    Plain(DeltaNet() ? "post_attention_norm.weight" : "ffn_norm.weight", {width_}, Values::kNorm);
    if (spec_.experts == 0) return MakeUnit("", false);
    Plain("ffn_gate_inp.weight", {width_, spec_.experts}, Values::kWeights);
    MakeUnit("_exps", true);
    if (spec_.architecture == "qwen3next") Plain("ffn_gate_inp_shexp.weight", {width_}, Values::kWeights);
    MakeUnit("_shexp", false);
  }

  const ModelSpec& spec_;
  uint32_t layer_;
  std::vector<TensorSpec>& tensors_;
  uint64_t width_;
};

}  // namespace

std::vector<std::string_view> ArchitectureNames() {
  return {"llama", "qwen3", "mamba2", "granitehybrid", "lfm2", "qwen35", "qwen3next"};
}

bool IsRecurrent(const ModelSpec& spec) { return spec.architecture != "llama" && spec.architecture != "qwen3"; }

bool Attends(const ModelSpec& spec, uint32_t layer) {
  if (!IsRecurrent(spec)) return true;
  return spec.architecture != "mamba2" && (layer + 1) % spec.attention_every == 0;
}

void AddLayerTensors(const ModelSpec& spec, uint32_t layer, std::vector<TensorSpec>& tensors) {
  LayerMaker(spec, layer, tensors).Make();
}

}  // namespace bulkhead::tools
