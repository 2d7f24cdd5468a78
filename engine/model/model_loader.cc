// Model::Load: finds and checks every tensor.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <set>
#include <string_view>

#include "base/checked.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "kernels/dispatch.h"

namespace bulkhead::engine {

class ModelLoader {
 public:
  explicit ModelLoader(const GgufFile& file) : file_(file) {}

  absl::StatusOr<std::unique_ptr<const Model>> Load() {
    auto model = std::unique_ptr<Model>(new Model);
    ASSIGN_OR_RETURN(model->config_, ModelConfig::Read(file_));
    config_ = &model->config_;
    RETURN_IF_ERROR(LoadEnds(*model));
    RETURN_IF_ERROR(LoadRotation(*model));
    model->layers_.resize(config_->layers);
    for (uint32_t i = 0; i < config_->layers; ++i) RETURN_IF_ERROR(LoadLayer(i, model->layers_[i]));
    RETURN_IF_ERROR(CheckAllUsed());
    for (const TensorInfo& tensor : file_.tensors()) model->weight_bytes_ += tensor.bytes.size();
    return std::unique_ptr<const Model>(std::move(model));
  }

 private:
  absl::Status LoadEnds(Model& model) {
    ASSIGN_OR_RETURN(model.embedding_, Matrix("token_embd.weight", config_->embedding, config_->vocabulary));
    model.output_ = model.embedding_;
    if (file_.FindTensor("output.weight") != nullptr) {
      ASSIGN_OR_RETURN(model.output_, Matrix("output.weight", config_->embedding, config_->vocabulary));
    }
    const bool lfm2 = config_->architecture == Architecture::kLfm2;
    ASSIGN_OR_RETURN(model.output_norm_,
                     Floats(lfm2 ? "token_embd_norm.weight" : "output_norm.weight", config_->embedding));
    return absl::OkStatus();
  }

  // Pair i turns by base^(-2i/n) radians a position; llama3 files divide each by a factor of their own.
  absl::Status LoadRotation(Model& model) {
    const uint32_t pairs = config_->rope_dimensions / 2;
    std::vector<float> factors(pairs, 1.0F);
    if (file_.FindTensor("rope_freqs.weight") != nullptr) {
      ASSIGN_OR_RETURN(factors, Floats("rope_freqs.weight", pairs));
    }
    for (uint32_t i = 0; i < pairs; ++i) {
      if (!std::isfinite(factors[i]) || factors[i] <= 0) {
        return Error(Reason::kModelInvalid,
                     fmt::format("tensor rope_freqs.weight: factor {} of pair {} is not positive", factors[i], i));
      }
      model.rope_frequencies_.push_back(
          std::pow(static_cast<double>(config_->rope_base), -2.0 * i / config_->rope_dimensions) / factors[i]);
    }
    return absl::OkStatus();
  }

  static std::string NameIn(uint32_t layer, std::string_view part) { return fmt::format("blk.{}.{}", layer, part); }

  absl::Status LoadLayer(uint32_t index, Model::Layer& layer) {
    layer.kind = config_->kinds[index];
    ASSIGN_OR_RETURN(layer.attention_norm, Floats(NameIn(index, "attn_norm.weight"), config_->embedding));
    if (layer.kind == LayerKind::kAttention) {
      layer.kv_layer = kv_layers_++;
      RETURN_IF_ERROR(LoadAttention(index, layer));
    } else {
      layer.state_offset = state_floats_;
      state_floats_ += (config_->conv_state_floats(layer.kind) + config_->scanned_floats(layer.kind) + 15) / 16 * 16;
      RETURN_IF_ERROR(LoadRecurrent(index, layer));
    }
    return LoadFeedForward(index, layer);
  }

  absl::Status LoadAttention(uint32_t index, Model::Layer& layer) {
    const uint32_t width = config_->embedding;
    const uint32_t queries = config_->heads * config_->head_size;
    const uint32_t keys = config_->kv_heads * config_->head_size;
    const uint32_t projected = config_->gated_attention ? 2 * queries : queries;
    ASSIGN_OR_RETURN(layer.query, Matrix(NameIn(index, "attn_q.weight"), width, projected));
    ASSIGN_OR_RETURN(layer.key, Matrix(NameIn(index, "attn_k.weight"), width, keys));
    ASSIGN_OR_RETURN(layer.value, Matrix(NameIn(index, "attn_v.weight"), width, keys));
    ASSIGN_OR_RETURN(layer.output, Matrix(NameIn(index, "attn_output.weight"), queries, width));
    if (!config_->head_norms) return absl::OkStatus();
    ASSIGN_OR_RETURN(layer.query_norm, Floats(NameIn(index, "attn_q_norm.weight"), config_->head_size));
    ASSIGN_OR_RETURN(layer.key_norm, Floats(NameIn(index, "attn_k_norm.weight"), config_->head_size));
    return absl::OkStatus();
  }

  absl::Status LoadRecurrent(uint32_t index, Model::Layer& layer) {
    const RecurrentShape& shape = config_->recurrent;
    Model::Layer::Recurrent& parts = layer.recurrent;
    const uint32_t width = config_->embedding;
    const uint32_t channels = config_->conv_channels(layer.kind);
    const uint32_t projected = config_->projected(layer.kind);
    if (layer.kind == LayerKind::kShortConv) {
      ASSIGN_OR_RETURN(parts.in, Matrix(NameIn(index, "shortconv.in_proj.weight"), width, projected));
      ASSIGN_OR_RETURN(parts.out, Matrix(NameIn(index, "shortconv.out_proj.weight"), width, width));
      return LoadTaps(NameIn(index, "shortconv.conv.weight"), channels, parts.taps);
    }
    const bool delta = layer.kind == LayerKind::kDeltaNet;
    RETURN_IF_ERROR(LoadTaps(NameIn(index, "ssm_conv1d.weight"), channels, parts.taps));
    ASSIGN_OR_RETURN(parts.in, Matrix(NameIn(index, delta ? "attn_qkv.weight" : "ssm_in.weight"), width, projected));
    ASSIGN_OR_RETURN(parts.out, Matrix(NameIn(index, "ssm_out.weight"), shape.inner, width));
    ASSIGN_OR_RETURN(parts.step_bias, Vector(NameIn(index, "ssm_dt.bias"), shape.heads));
    ASSIGN_OR_RETURN(parts.decay, Vector(NameIn(index, "ssm_a"), shape.heads));
    ASSIGN_OR_RETURN(parts.norm, Vector(NameIn(index, "ssm_norm.weight"), delta ? shape.inner_head() : shape.inner));
    if (delta) return LoadDeltaGates(index, parts);
    ASSIGN_OR_RETURN(parts.taps_bias, Vector(NameIn(index, "ssm_conv1d.bias"), channels));
    ASSIGN_OR_RETURN(parts.skip, Vector(NameIn(index, "ssm_d"), shape.heads));
    return absl::OkStatus();
  }

  absl::Status LoadDeltaGates(uint32_t index, Model::Layer::Recurrent& parts) {
    const RecurrentShape& shape = config_->recurrent;
    const uint32_t width = config_->embedding;
    ASSIGN_OR_RETURN(parts.gate, Matrix(NameIn(index, "attn_gate.weight"), width, shape.inner));
    parts.joint_gates = file_.FindTensor(NameIn(index, "ssm_ba.weight")) != nullptr;
    if (parts.joint_gates) {
      ASSIGN_OR_RETURN(parts.beta, Matrix(NameIn(index, "ssm_ba.weight"), width, 2 * shape.heads));
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(parts.beta, Matrix(NameIn(index, "ssm_beta.weight"), width, shape.heads));
    ASSIGN_OR_RETURN(parts.alpha, Matrix(NameIn(index, "ssm_alpha.weight"), width, shape.heads));
    return absl::OkStatus();
  }

  // The file has each channel's taps together, the convolution wants each tap's channels.
  absl::Status LoadTaps(const std::string& name, uint32_t channels, std::vector<float>& taps) {
    const uint32_t count = config_->recurrent.taps;
    ASSIGN_OR_RETURN(const kernels::WeightMatrix matrix, Matrix(name, count, channels));
    taps.resize(size_t{count} * channels);
    std::vector<float> row(count);
    for (uint32_t channel = 0; channel < channels; ++channel) {
      const auto* at = static_cast<const std::byte*>(matrix.data) + channel * matrix.row_bytes;
      kernels::DefaultTier().table->dequantise(matrix.type, at, count, row.data());
      for (uint32_t tap = 0; tap < count; ++tap) taps[size_t{tap} * channels + channel] = row[tap];
    }
    return absl::OkStatus();
  }

  absl::Status LoadFeedForward(uint32_t index, Model::Layer& layer) {
    if (config_->feed_forward == 0 && config_->mixture.experts == 0) return absl::OkStatus();
    const bool after_attention = config_->gated_attention;
    ASSIGN_OR_RETURN(
        layer.feed_forward_norm,
        Floats(NameIn(index, after_attention ? "post_attention_norm.weight" : "ffn_norm.weight"), config_->embedding));
    if (config_->mixture.experts == 0) return LoadUnit(index, "", config_->feed_forward, 1, layer.feed_forward);
    const MixtureShape& shape = config_->mixture;
    ASSIGN_OR_RETURN(layer.mixture.router,
                     Matrix(NameIn(index, "ffn_gate_inp.weight"), config_->embedding, shape.experts));
    RETURN_IF_ERROR(LoadUnit(index, "_exps", shape.feed_forward, shape.experts, layer.mixture.experts));
    if (shape.shared_feed_forward == 0) return absl::OkStatus();
    if (shape.gated_shared) {
      ASSIGN_OR_RETURN(layer.mixture.shared_gate,
                       Matrix(NameIn(index, "ffn_gate_inp_shexp.weight"), config_->embedding, 1));
    }
    return LoadUnit(index, "_shexp", shape.shared_feed_forward, 1, layer.mixture.shared);
  }

  absl::Status LoadUnit(uint32_t index, std::string_view suffix, uint32_t width, uint32_t experts,
                        Model::Layer::GatedUnit& unit) {
    const auto name = [&](std::string_view part) { return fmt::format("blk.{}.ffn_{}{}.weight", index, part, suffix); };
    ASSIGN_OR_RETURN(unit.gate, Matrix(name("gate"), config_->embedding, width, experts));
    ASSIGN_OR_RETURN(unit.up, Matrix(name("up"), config_->embedding, width, experts));
    ASSIGN_OR_RETURN(unit.down, Matrix(name("down"), width, config_->embedding, experts));
    return absl::OkStatus();
  }

  absl::StatusOr<const TensorInfo*> FindAny(std::string_view name) {
    const TensorInfo* tensor = file_.FindTensor(name);
    if (tensor == nullptr) return Error(Reason::kModelInvalid, fmt::format("tensor {} is missing", name));
    used_.insert(tensor->name);
    return tensor;
  }

  absl::StatusOr<const TensorInfo*> Find(std::string_view name, uint64_t cols, uint64_t rows, uint64_t planes) {
    ASSIGN_OR_RETURN(const TensorInfo* tensor, FindAny(name));
    if (tensor->dims[0] != cols || tensor->dims[1] != rows || tensor->dims[2] != planes || tensor->dims[3] != 1) {
      return Error(Reason::kModelInvalid,
                   fmt::format("tensor {}: {} x {} x {} x {}, the header asks for {} x {} x {}", name, tensor->dims[0],
                               tensor->dims[1], tensor->dims[2], tensor->dims[3], cols, rows, planes));
    }
    return tensor;
  }

  static absl::StatusOr<const kernels::WeightTypeInfo*> KernelType(const TensorInfo& tensor) {
    const auto* type = kernels::FindWeightType(static_cast<uint32_t>(tensor.type));
    if (type != nullptr) return type;
    return Error(Reason::kModelUnsupported,
                 fmt::format("tensor {}: type {} is not known yet", tensor.name, NameOf(tensor.type)));
  }

  // With `planes` matrices of one name, the rows of all of them one after the other.
  absl::StatusOr<kernels::WeightMatrix> Matrix(std::string_view name, uint32_t cols, uint32_t rows,
                                               uint32_t planes = 1) {
    ASSIGN_OR_RETURN(const TensorInfo* tensor, Find(name, cols, rows, planes));
    ASSIGN_OR_RETURN(const auto* type, KernelType(*tensor));
    return kernels::WeightMatrix{tensor->bytes.data(), kernels::RowBytes(type->type, cols), rows * planes, cols,
                                 type->type};
  }

  // A vector as aligned floats of our own: files may store it as half floats, and at any alignment.
  absl::StatusOr<std::vector<float>> Floats(std::string_view name, uint32_t count) {
    ASSIGN_OR_RETURN(const kernels::WeightMatrix matrix, Matrix(name, count, 1));
    std::vector<float> values(count);
    kernels::DefaultTier().table->dequantise(matrix.type, matrix.data, count, values.data());
    return values;
  }

  // The same for numbers that files lay out in one dimension or in two.
  absl::StatusOr<std::vector<float>> Vector(std::string_view name, uint32_t count) {
    ASSIGN_OR_RETURN(const TensorInfo* tensor, FindAny(name));
    if (tensor->weights() != count) {
      return Error(Reason::kModelInvalid,
                   fmt::format("tensor {}: {} numbers, the header asks for {}", name, tensor->weights(), count));
    }
    ASSIGN_OR_RETURN(const auto* type, KernelType(*tensor));
    std::vector<float> values(count);
    kernels::DefaultTier().table->dequantise(type->type, tensor->bytes.data(), count, values.data());
    return values;
  }

  absl::Status CheckAllUsed() const {
    for (const TensorInfo& tensor : file_.tensors()) {
      if (used_.contains(tensor.name)) continue;
      return Error(Reason::kModelUnsupported, fmt::format("tensor {} is nothing that architecture {} is known to have",
                                                          tensor.name, config_->architecture_name));
    }
    return absl::OkStatus();
  }

  const GgufFile& file_;
  const ModelConfig* config_ = nullptr;
  std::set<std::string_view> used_;
  uint32_t kv_layers_ = 0;     // so far
  uint64_t state_floats_ = 0;  // likewise
};

absl::StatusOr<std::unique_ptr<const Model>> Model::Load(const GgufFile& file) { return ModelLoader(file).Load(); }

}  // namespace bulkhead::engine
