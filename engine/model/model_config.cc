#include "engine/model/model_config.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "engine/gguf/gguf.h"

namespace bulkhead::engine {
namespace {

// Reads keys of one architecture's prefix, checking ranges as it goes.
class HeaderReader {
 public:
  HeaderReader(const GgufFile& file, std::string_view architecture) : file_(file), prefix_(architecture) {}

  [[nodiscard]] std::string Key(std::string_view name) const { return fmt::format("{}.{}", prefix_, name); }
  [[nodiscard]] bool Has(std::string_view name) const { return file_.Find(Key(name)) != nullptr; }

  [[nodiscard]] absl::StatusOr<uint32_t> Number(std::string_view name, uint32_t least, uint32_t most) const {
    ASSIGN_OR_RETURN(const uint32_t value, file_.GetU32(Key(name)));
    return InRange(name, value, least, most);
  }
  [[nodiscard]] absl::StatusOr<uint32_t> Number(std::string_view name, uint32_t least, uint32_t most,
                                                uint32_t fallback) const {
    ASSIGN_OR_RETURN(const uint32_t value, file_.GetU32(Key(name), fallback));
    return InRange(name, value, least, most);
  }
  [[nodiscard]] absl::StatusOr<float> Positive(std::string_view name, float fallback) const {
    ASSIGN_OR_RETURN(const float value, file_.GetFloat(Key(name), fallback));
    if (std::isfinite(value) && value > 0) return value;
    return Error(Reason::kModelInvalid, fmt::format("{}: {} is not a positive number", Key(name), value));
  }

 private:
  [[nodiscard]] absl::StatusOr<uint32_t> InRange(std::string_view name, uint32_t value, uint32_t least,
                                                 uint32_t most) const {
    if (value >= least && value <= most) return value;
    return Error(Reason::kModelInvalid, fmt::format("{}: {} is outside {}..{}", Key(name), value, least, most));
  }

  const GgufFile& file_;
  std::string_view prefix_;
};

absl::Status SetArchitecture(std::string_view name, ModelConfig& config) {
  config.architecture_name = std::string(name);
  if (name == "llama") {
    config.architecture = Architecture::kLlama;
    config.rope_pairing = kernels::RopePairing::kNorm;
    return absl::OkStatus();
  }
  if (name == "qwen3") {
    config.architecture = Architecture::kQwen3;
    config.rope_pairing = kernels::RopePairing::kNeox;
    config.head_norms = true;
    return absl::OkStatus();
  }
  return Error(Reason::kModelUnsupported, fmt::format("general.architecture: '{}' is none of llama, qwen3", name));
}

absl::Status ReadShape(const HeaderReader& header, ModelConfig& config) {
  ASSIGN_OR_RETURN(config.layers, header.Number("block_count", 1, ModelConfig::kMaxLayers));
  ASSIGN_OR_RETURN(config.embedding, header.Number("embedding_length", 1, ModelConfig::kMaxWidth));
  ASSIGN_OR_RETURN(config.feed_forward, header.Number("feed_forward_length", 1, ModelConfig::kMaxWidth));
  ASSIGN_OR_RETURN(config.trained_context, header.Number("context_length", 1, ModelConfig::kMaxContext));
  ASSIGN_OR_RETURN(config.heads, header.Number("attention.head_count", 1, ModelConfig::kMaxHeads));
  ASSIGN_OR_RETURN(config.kv_heads, header.Number("attention.head_count_kv", 1, ModelConfig::kMaxHeads, config.heads));
  if (config.heads % config.kv_heads != 0) {
    return Error(Reason::kModelInvalid,
                 fmt::format("{} attention heads cannot share {} key and value heads", config.heads, config.kv_heads));
  }
  if (!header.Has("attention.key_length") && config.embedding % config.heads != 0) {
    return Error(Reason::kModelInvalid,
                 fmt::format("embedding length {} cannot be divided among {} heads", config.embedding, config.heads));
  }
  const uint32_t share = config.embedding / config.heads;
  ASSIGN_OR_RETURN(config.head_size, header.Number("attention.key_length", 2, ModelConfig::kMaxHeadSize, share));
  ASSIGN_OR_RETURN(const uint32_t value_length,
                   header.Number("attention.value_length", 1, ModelConfig::kMaxWidth, config.head_size));
  if (value_length != config.head_size) {
    return Error(Reason::kModelUnsupported,
                 fmt::format("value length {} differs from key length {}", value_length, config.head_size));
  }
  return absl::OkStatus();
}

absl::Status ReadRotation(const GgufFile& file, const HeaderReader& header, ModelConfig& config) {
  ASSIGN_OR_RETURN(config.rope_dimensions,
                   header.Number("rope.dimension_count", 2, config.head_size, config.head_size));
  if (config.rope_dimensions % 2 != 0) {
    return Error(Reason::kModelInvalid, fmt::format("rope.dimension_count: {} is odd", config.rope_dimensions));
  }
  ASSIGN_OR_RETURN(config.rope_base, header.Positive("rope.freq_base", 10000.0F));
  ASSIGN_OR_RETURN(const std::string_view scaling, file.GetString(header.Key("rope.scaling.type"), "none"));
  ASSIGN_OR_RETURN(const float factor, header.Positive("rope.scaling.factor", 1.0F));
  ASSIGN_OR_RETURN(const float linear, header.Positive("rope.scale_linear", 1.0F));
  if ((scaling != "none" && factor != 1.0F) || linear != 1.0F) {
    return Error(Reason::kModelUnsupported, fmt::format("rope.scaling.type: '{}' is not known yet", scaling));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelConfig> ModelConfig::Read(const GgufFile& file) {
  ModelConfig config;
  ASSIGN_OR_RETURN(const std::string_view architecture, file.GetString("general.architecture"));
  RETURN_IF_ERROR(SetArchitecture(architecture, config));
  ASSIGN_OR_RETURN(const std::string_view name, file.GetString("general.name", ""));
  config.name = std::string(name);
  const HeaderReader header(file, architecture);
  RETURN_IF_ERROR(ReadShape(header, config));
  RETURN_IF_ERROR(ReadRotation(file, header, config));
  ASSIGN_OR_RETURN(config.norm_epsilon, header.Positive("attention.layer_norm_rms_epsilon", 1e-5F));
  ASSIGN_OR_RETURN(const uint32_t experts, header.Number("expert_count", 0, kMaxWidth, 0));
  if (experts != 0) {
    return Error(Reason::kModelUnsupported, fmt::format("{} experts: mixtures are not known yet", experts));
  }
  const TensorInfo* embedding = file.FindTensor("token_embd.weight");
  if (embedding == nullptr) return Error(Reason::kModelInvalid, "tensor token_embd.weight is missing");
  if (embedding->dims[1] > kMaxVocabulary) {
    return Error(Reason::kModelInvalid,
                 fmt::format("tensor token_embd.weight: {} tokens, at most {}", embedding->dims[1], kMaxVocabulary));
  }
  config.vocabulary = static_cast<uint32_t>(embedding->dims[1]);
  return config;
}

}  // namespace bulkhead::engine
