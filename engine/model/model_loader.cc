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
    ASSIGN_OR_RETURN(model.output_norm_, Floats("output_norm.weight", config_->embedding));
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

  absl::Status LoadLayer(uint32_t index, Model::Layer& layer) {
    const auto name = [index](std::string_view part) { return fmt::format("blk.{}.{}.weight", index, part); };
    const uint32_t width = config_->embedding;
    const uint32_t queries = config_->heads * config_->head_size;
    const uint32_t keys = config_->kv_heads * config_->head_size;
    ASSIGN_OR_RETURN(layer.attention_norm, Floats(name("attn_norm"), width));
    ASSIGN_OR_RETURN(layer.query, Matrix(name("attn_q"), width, queries));
    ASSIGN_OR_RETURN(layer.key, Matrix(name("attn_k"), width, keys));
    ASSIGN_OR_RETURN(layer.value, Matrix(name("attn_v"), width, keys));
    ASSIGN_OR_RETURN(layer.output, Matrix(name("attn_output"), queries, width));
    if (config_->head_norms) {
      ASSIGN_OR_RETURN(layer.query_norm, Floats(name("attn_q_norm"), config_->head_size));
      ASSIGN_OR_RETURN(layer.key_norm, Floats(name("attn_k_norm"), config_->head_size));
    }
    ASSIGN_OR_RETURN(layer.feed_forward_norm, Floats(name("ffn_norm"), width));
    ASSIGN_OR_RETURN(layer.gate, Matrix(name("ffn_gate"), width, config_->feed_forward));
    ASSIGN_OR_RETURN(layer.up, Matrix(name("ffn_up"), width, config_->feed_forward));
    ASSIGN_OR_RETURN(layer.down, Matrix(name("ffn_down"), config_->feed_forward, width));
    return absl::OkStatus();
  }

  absl::StatusOr<const TensorInfo*> Find(std::string_view name, uint64_t cols, uint64_t rows) {
    const TensorInfo* tensor = file_.FindTensor(name);
    if (tensor == nullptr) return Error(Reason::kModelInvalid, fmt::format("tensor {} is missing", name));
    if (tensor->dims[0] != cols || tensor->dims[1] != rows || tensor->dims[2] != 1 || tensor->dims[3] != 1) {
      return Error(Reason::kModelInvalid,
                   fmt::format("tensor {}: {} x {} x {} x {}, the header asks for {} x {}", name, tensor->dims[0],
                               tensor->dims[1], tensor->dims[2], tensor->dims[3], cols, rows));
    }
    used_.insert(tensor->name);
    return tensor;
  }

  absl::StatusOr<kernels::WeightMatrix> Matrix(std::string_view name, uint32_t cols, uint32_t rows) {
    ASSIGN_OR_RETURN(const TensorInfo* tensor, Find(name, cols, rows));
    const auto* type = kernels::FindWeightType(static_cast<uint32_t>(tensor->type));
    if (type == nullptr) {
      return Error(Reason::kModelUnsupported,
                   fmt::format("tensor {}: type {} is not known yet", name, NameOf(tensor->type)));
    }
    return kernels::WeightMatrix{tensor->bytes.data(), kernels::RowBytes(type->type, cols), rows, cols, type->type};
  }

  // A vector as aligned floats of our own: files may store it as half floats, and at any alignment.
  absl::StatusOr<std::vector<float>> Floats(std::string_view name, uint32_t count) {
    ASSIGN_OR_RETURN(const kernels::WeightMatrix matrix, Matrix(name, count, 1));
    std::vector<float> values(count);
    kernels::DefaultTier().table->dequantise(matrix.type, matrix.data, count, values.data());
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
};

absl::StatusOr<std::unique_ptr<const Model>> Model::Load(const GgufFile& file) { return ModelLoader(file).Load(); }

}  // namespace bulkhead::engine
