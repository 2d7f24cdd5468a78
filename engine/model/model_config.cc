#include "engine/model/model_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "engine/model/header_reader.h"

namespace bulkhead::engine {
namespace {

// How an architecture says which of its layers do not attend.
enum class Hybrid : uint8_t { kNone, kAll, kByKvHeads, kByInterval };

struct Traits {
  std::string_view name;
  Architecture architecture;
  kernels::RopePairing pairing;
  bool head_norms;
  Hybrid hybrid;
  LayerKind kind;  // of the layers that do not attend
};

constexpr auto kNorm = kernels::RopePairing::kNorm;
constexpr auto kNeox = kernels::RopePairing::kNeox;
constexpr std::array kTraits = {
    Traits{"llama", Architecture::kLlama, kNorm, false, Hybrid::kNone, LayerKind::kAttention},
    Traits{"qwen3", Architecture::kQwen3, kNeox, true, Hybrid::kNone, LayerKind::kAttention},
    Traits{"mamba2", Architecture::kMamba2, kNorm, false, Hybrid::kAll, LayerKind::kMamba2},
    Traits{"granitehybrid", Architecture::kGraniteHybrid, kNorm, false, Hybrid::kByKvHeads, LayerKind::kMamba2},
    Traits{"lfm2", Architecture::kLfm2, kNeox, true, Hybrid::kByKvHeads, LayerKind::kShortConv},
    Traits{"qwen35", Architecture::kQwen35, kNeox, true, Hybrid::kByInterval, LayerKind::kDeltaNet},
    Traits{"qwen3next", Architecture::kQwen3Next, kNeox, true, Hybrid::kByInterval, LayerKind::kDeltaNet},
};

absl::StatusOr<const Traits*> FindTraits(std::string_view name) {
  std::vector<std::string_view> known;
  for (const Traits& traits : kTraits) {
    if (traits.name == name) return &traits;
    known.push_back(traits.name);
  }
  return Error(Reason::kModelUnsupported,
               fmt::format("general.architecture: '{}' is none of {}", name, fmt::join(known, ", ")));
}

// Which layer is of which kind, and the key-value heads of those that attend.
absl::Status ReadKinds(const HeaderReader& header, const Traits& traits, ModelConfig& config) {
  config.kinds.assign(config.layers, LayerKind::kAttention);
  if (traits.hybrid == Hybrid::kAll) {
    config.kinds.assign(config.layers, traits.kind);
    return absl::OkStatus();
  }
  if (traits.hybrid == Hybrid::kByInterval) {
    ASSIGN_OR_RETURN(const uint32_t interval, header.Number("full_attention_interval", 1, ModelConfig::kMaxLayers, 4));
    for (uint32_t i = 0; i < config.layers; ++i) {
      if ((i + 1) % interval != 0) config.kinds[i] = traits.kind;
    }
  }
  ASSIGN_OR_RETURN(config.heads, header.Number("attention.head_count", 1, ModelConfig::kMaxHeads));
  ASSIGN_OR_RETURN(const auto kv_heads,
                   header.PerLayer("attention.head_count_kv", config.layers, ModelConfig::kMaxHeads, config.heads));
  for (uint32_t i = 0; i < config.layers; ++i) {
    if (kv_heads[i] == 0 && traits.hybrid == Hybrid::kByKvHeads) {
      config.kinds[i] = traits.kind;
    } else if (config.kinds[i] == LayerKind::kAttention) {
      if (config.kv_heads != 0 && kv_heads[i] != config.kv_heads) {
        return Error(Reason::kModelUnsupported,
                     fmt::format("layer {} has {} key-value heads, another {}", i, kv_heads[i], config.kv_heads));
      }
      config.kv_heads = kv_heads[i];
    }
  }
  return absl::OkStatus();
}

absl::Status ReadHeads(const HeaderReader& header, ModelConfig& config) {
  if (config.kv_heads == 0 || config.heads % config.kv_heads != 0) {
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
  ASSIGN_OR_RETURN(config.attention_scale,
                   header.Positive("attention.scale", 1.0F / std::sqrt(static_cast<float>(config.head_size))));
  return absl::OkStatus();
}

absl::Status ReadShape(const HeaderReader& header, const Traits& traits, ModelConfig& config) {
  ASSIGN_OR_RETURN(config.layers, header.Number("block_count", 1, ModelConfig::kMaxLayers));
  ASSIGN_OR_RETURN(config.embedding, header.Number("embedding_length", 1, ModelConfig::kMaxWidth));
  ASSIGN_OR_RETURN(config.trained_context, header.Number("context_length", 1, ModelConfig::kMaxContext));
  if (config.architecture != Architecture::kMamba2) {
    ASSIGN_OR_RETURN(config.feed_forward, header.Number("feed_forward_length", 1, ModelConfig::kMaxWidth));
  }
  RETURN_IF_ERROR(ReadKinds(header, traits, config));
  return config.attention_layers() == 0 ? absl::OkStatus() : ReadHeads(header, config);
}

absl::Status ReadRotation(const HeaderReader& header, ModelConfig& config) {
  if (config.architecture == Architecture::kGraniteHybrid) {
    // Said by a key of another purpose, as the reference reads it.
    ASSIGN_OR_RETURN(const bool turns, header.file().GetBool(header.Key("rope.scaling.finetuned"), true));
    if (!turns) return absl::OkStatus();
  }
  if (config.attention_layers() == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(config.rope_dimensions,
                   header.Number("rope.dimension_count", 2, config.head_size, config.head_size));
  if (config.rope_dimensions % 2 != 0) {
    return Error(Reason::kModelInvalid, fmt::format("rope.dimension_count: {} is odd", config.rope_dimensions));
  }
  ASSIGN_OR_RETURN(config.rope_base, header.Positive("rope.freq_base", 10000.0F));
  ASSIGN_OR_RETURN(const std::string_view scaling, header.file().GetString(header.Key("rope.scaling.type"), "none"));
  ASSIGN_OR_RETURN(const float factor, header.Positive("rope.scaling.factor", 1.0F));
  ASSIGN_OR_RETURN(const float linear, header.Positive("rope.scale_linear", 1.0F));
  if ((scaling != "none" && factor != 1.0F) || linear != 1.0F) {
    return Error(Reason::kModelUnsupported, fmt::format("rope.scaling.type: '{}' is not known yet", scaling));
  }
  return absl::OkStatus();
}

absl::Status CheckRecurrent(const ModelConfig& config, LayerKind kind) {
  const RecurrentShape& shape = config.recurrent;
  if (shape.inner % shape.heads != 0 || shape.heads % shape.groups != 0 || shape.inner % shape.groups != 0) {
    return Error(Reason::kModelInvalid, fmt::format("ssm.inner_size {} cannot be divided among {} heads in {} groups",
                                                    shape.inner, shape.heads, shape.groups));
  }
  if (shape.state % kernels::kSumLanes != 0 || shape.state > kernels::kScanStateMax) {
    return Error(Reason::kModelUnsupported, fmt::format("ssm.state_size {} is no multiple of {} up to {}", shape.state,
                                                        kernels::kSumLanes, kernels::kScanStateMax));
  }
  if (config.conv_channels(kind) > ModelConfig::kMaxWidth) {
    return Error(Reason::kModelInvalid, fmt::format("{} channels of the convolution, at most {}",
                                                    config.conv_channels(kind), ModelConfig::kMaxWidth));
  }
  return absl::OkStatus();
}

absl::Status ReadRecurrent(const HeaderReader& header, const Traits& traits, ModelConfig& config) {
  RecurrentShape& shape = config.recurrent;
  if (!config.is_recurrent()) return absl::OkStatus();
  if (traits.kind == LayerKind::kShortConv) {
    ASSIGN_OR_RETURN(shape.taps, header.Number("shortconv.l_cache", 2, ModelConfig::kMaxTaps));
    shape.inner = config.embedding;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(shape.taps, header.Number("ssm.conv_kernel", 2, ModelConfig::kMaxTaps));
  ASSIGN_OR_RETURN(shape.inner, header.Number("ssm.inner_size", 1, ModelConfig::kMaxWidth));
  ASSIGN_OR_RETURN(shape.state, header.Number("ssm.state_size", 1, ModelConfig::kMaxWidth));
  ASSIGN_OR_RETURN(shape.heads, header.Number("ssm.time_step_rank", 1, ModelConfig::kMaxHeads));
  ASSIGN_OR_RETURN(shape.groups, header.Number("ssm.group_count", 1, ModelConfig::kMaxHeads));
  shape.tiled_heads = config.architecture == Architecture::kQwen35;
  return CheckRecurrent(config, traits.kind);
}

absl::Status ReadMixture(const HeaderReader& header, ModelConfig& config) {
  MixtureShape& shape = config.mixture;
  ASSIGN_OR_RETURN(shape.experts, header.Number("expert_count", 0, ModelConfig::kMaxExperts, 0));
  if (shape.experts == 0) return absl::OkStatus();
  if (config.architecture != Architecture::kGraniteHybrid && config.architecture != Architecture::kQwen3Next) {
    return Error(Reason::kModelUnsupported, fmt::format("{} experts: {} with a mixture is not known yet", shape.experts,
                                                        config.architecture_name));
  }
  ASSIGN_OR_RETURN(shape.used, header.Number("expert_used_count", 1, shape.experts));
  ASSIGN_OR_RETURN(shape.feed_forward,
                   header.Number("expert_feed_forward_length", 1, ModelConfig::kMaxWidth, config.feed_forward));
  ASSIGN_OR_RETURN(shape.shared_feed_forward,
                   header.Number("expert_shared_feed_forward_length", 0, ModelConfig::kMaxWidth, 0));
  shape.gated_shared = config.architecture == Architecture::kQwen3Next;
  config.feed_forward = 0;
  return absl::OkStatus();
}

absl::Status ReadScales(const HeaderReader& header, ModelConfig& config) {
  ASSIGN_OR_RETURN(config.norm_epsilon, header.Positive("attention.layer_norm_rms_epsilon", 1e-5F));
  if (config.architecture != Architecture::kGraniteHybrid) return absl::OkStatus();
  ASSIGN_OR_RETURN(config.embedding_scale, header.Positive("embedding_scale", 1.0F));
  ASSIGN_OR_RETURN(config.residual_scale, header.Positive("residual_scale", 1.0F));
  ASSIGN_OR_RETURN(config.logit_divisor, header.Positive("logit_scale", 1.0F));
  return absl::OkStatus();
}

absl::Status ReadVocabulary(const GgufFile& file, ModelConfig& config) {
  const TensorInfo* embedding = file.FindTensor("token_embd.weight");
  if (embedding == nullptr) return Error(Reason::kModelInvalid, "tensor token_embd.weight is missing");
  if (embedding->dims[1] > ModelConfig::kMaxVocabulary) {
    return Error(Reason::kModelInvalid, fmt::format("tensor token_embd.weight: {} tokens, at most {}",
                                                    embedding->dims[1], ModelConfig::kMaxVocabulary));
  }
  config.vocabulary = static_cast<uint32_t>(embedding->dims[1]);
  return absl::OkStatus();
}

}  // namespace

uint32_t ModelConfig::attention_layers() const {
  return static_cast<uint32_t>(std::count(kinds.begin(), kinds.end(), LayerKind::kAttention));
}

uint32_t ModelConfig::conv_channels(LayerKind kind) const {
  switch (kind) {
    case LayerKind::kAttention:
      return 0;
    case LayerKind::kShortConv:
      return embedding;
    case LayerKind::kMamba2:
    case LayerKind::kDeltaNet:
      return recurrent.inner + 2 * recurrent.groups * recurrent.state;
  }
  return 0;
}

uint32_t ModelConfig::projected(LayerKind kind) const {
  switch (kind) {
    case LayerKind::kAttention:
      return 0;
    case LayerKind::kShortConv:
      return 3 * embedding;
    case LayerKind::kMamba2:
      return recurrent.inner + conv_channels(kind) + recurrent.heads;
    case LayerKind::kDeltaNet:
      return conv_channels(kind);
  }
  return 0;
}

uint64_t ModelConfig::conv_state_floats(LayerKind kind) const {
  return kind == LayerKind::kAttention ? 0 : uint64_t{recurrent.taps - 1} * conv_channels(kind);
}

uint64_t ModelConfig::scanned_floats(LayerKind kind) const {
  return kind == LayerKind::kMamba2 || kind == LayerKind::kDeltaNet ? uint64_t{recurrent.inner} * recurrent.state : 0;
}

uint64_t ModelConfig::state_floats() const {
  uint64_t floats = 0;
  for (const LayerKind kind : kinds) floats += (conv_state_floats(kind) + scanned_floats(kind) + 15) / 16 * 16;
  return floats;
}

absl::StatusOr<ModelConfig> ModelConfig::Read(const GgufFile& file) {
  ModelConfig config;
  ASSIGN_OR_RETURN(const std::string_view architecture, file.GetString("general.architecture"));
  ASSIGN_OR_RETURN(const Traits* traits, FindTraits(architecture));
  config.architecture = traits->architecture;
  config.architecture_name = std::string(traits->name);
  config.rope_pairing = traits->pairing;
  config.head_norms = traits->head_norms;
  config.gated_attention = traits->kind == LayerKind::kDeltaNet;
  ASSIGN_OR_RETURN(const std::string_view name, file.GetString("general.name", ""));
  config.name = std::string(name);
  const HeaderReader header(file, architecture);
  RETURN_IF_ERROR(ReadShape(header, *traits, config));
  RETURN_IF_ERROR(ReadRotation(header, config));
  RETURN_IF_ERROR(ReadRecurrent(header, *traits, config));
  RETURN_IF_ERROR(ReadMixture(header, config));
  RETURN_IF_ERROR(ReadScales(header, config));
  RETURN_IF_ERROR(ReadVocabulary(file, config));
  return config;
}

}  // namespace bulkhead::engine
