#include "tools/make_model/model_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "tools/make_model/layer_tensors.h"

namespace bulkhead::tools {
namespace {

using engine::WeightType;

struct Shape {
  std::string_view name;
  std::string_view architecture;
  uint32_t layers, embedding, feed_forward, heads, kv_heads, head, context, vocabulary;
  bool tied;
  float rope_base, rms_epsilon;
};

constexpr std::array kShapes = {
    Shape{"small", "llama", 2, 256, 512, 8, 2, 32, 2048, 512, false, 1e4f, 1e-5f},
    Shape{"qwen3-0.6b", "qwen3", 28, 1024, 3072, 16, 8, 128, 40960, 151936, true, 1e6f, 1e-6f},
    Shape{"qwen3-1.7b", "qwen3", 28, 2048, 6144, 16, 8, 128, 40960, 151936, true, 1e6f, 1e-6f},
    Shape{"llama-1b", "llama", 16, 2048, 8192, 32, 8, 64, 131072, 128256, true, 5e5f, 1e-5f},
};

absl::Status Invalid(const std::string& message) { return Error(Reason::kInvalidRequest, message); }

absl::Status ValidateRecurrent(const ModelSpec& spec) {
  if (!IsRecurrent(spec)) return absl::OkStatus();
  const uint32_t block = InfoOf(spec.type).block_weights;
  if (spec.attention_every == 0 || spec.state_heads == 0 || spec.state_groups == 0 || spec.taps < 2 ||
      spec.inner % spec.state_heads != 0 || spec.state_heads % spec.state_groups != 0 || spec.inner % block != 0 ||
      spec.state % 16 != 0) {
    return Invalid(
        fmt::format("inner {}, state {} in {} heads and {} groups, {} taps: heads must divide inner, groups "
                    "heads, 16 state, and a block of {} inner",
                    spec.inner, spec.state, spec.state_heads, spec.state_groups, spec.taps, block));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string_view> ShapeNames() {
  std::vector<std::string_view> names;
  for (const Shape& shape : kShapes) names.push_back(shape.name);
  return names;
}

absl::StatusOr<ModelSpec> NamedShape(std::string_view name) {
  const auto* shape = std::find_if(kShapes.begin(), kShapes.end(), [&](const Shape& s) { return s.name == name; });
  if (shape == kShapes.end()) return Invalid(fmt::format("shape {}: not known", name));
  ModelSpec spec;
  spec.name = shape->name;
  spec.architecture = shape->architecture;
  spec.layers = shape->layers;
  spec.embedding = shape->embedding;
  spec.feed_forward = shape->feed_forward;
  spec.heads = shape->heads;
  spec.kv_heads = shape->kv_heads;
  spec.head = shape->head;
  spec.context = shape->context;
  spec.vocabulary = shape->vocabulary;
  spec.tied = shape->tied;
  spec.rope_base = shape->rope_base;
  spec.rms_epsilon = shape->rms_epsilon;
  return spec;
}

absl::Status Validate(const ModelSpec& spec) {
  const auto known = ArchitectureNames();
  if (std::find(known.begin(), known.end(), spec.architecture) == known.end()) {
    return Invalid(fmt::format("architecture {}: none of {}", spec.architecture, fmt::join(known, ", ")));
  }
  if (spec.tokenizer != "bpe" && spec.tokenizer != "spm") {
    return Invalid(fmt::format("tokenizer {}: bpe or spm", spec.tokenizer));
  }
  constexpr WeightType kTypes[] = {WeightType::kF32,  WeightType::kF16,  WeightType::kBF16, WeightType::kQ8_0,
                                   WeightType::kQ5_0, WeightType::kQ4_0, WeightType::kQ6_K, WeightType::kQ4_K};
  if (std::find(std::begin(kTypes), std::end(kTypes), spec.type) == std::end(kTypes)) {
    return Invalid(fmt::format("type {}: F32, F16, BF16, Q8_0, Q5_0, Q4_0, Q6_K or Q4_K", NameOf(spec.type)));
  }
  const uint32_t block = InfoOf(spec.type).block_weights;
  for (const uint64_t rows :
       {uint64_t{spec.embedding}, uint64_t{spec.feed_forward}, uint64_t{spec.heads} * spec.head}) {
    if (rows == 0 || rows % block != 0) {
      return Invalid(
          fmt::format("{} weights a row: not a multiple of {}, the block of {}", rows, block, NameOf(spec.type)));
    }
  }
  if (spec.layers == 0 || spec.kv_heads == 0 || spec.heads % spec.kv_heads != 0 || spec.head % 2 != 0) {
    return Invalid(
        fmt::format("layers {}, heads {}, kv heads {}, head {}: heads must be a multiple of kv heads, head even",
                    spec.layers, spec.heads, spec.kv_heads, spec.head));
  }
  RETURN_IF_ERROR(ValidateRecurrent(spec));
  if (spec.experts != 0 && (spec.experts_used == 0 || spec.experts_used > spec.experts ||
                            (spec.architecture != "granitehybrid" && spec.architecture != "qwen3next"))) {
    return Invalid(fmt::format("{} of {} experts in {}: at least one, and only granitehybrid and qwen3next have them",
                               spec.experts_used, spec.experts, spec.architecture));
  }
  if (spec.vocabulary < 320 || spec.vocabulary > 1'000'000) {
    return Invalid(fmt::format("vocabulary {}: between 320 and 1000000", spec.vocabulary));
  }
  return absl::OkStatus();
}

std::vector<TensorSpec> TensorsOf(const ModelSpec& spec) {
  std::vector<TensorSpec> tensors;
  tensors.push_back({"token_embd.weight", {spec.embedding, spec.vocabulary}, spec.type, Values::kWeights});
  const std::string_view last_norm = spec.architecture == "lfm2" ? "token_embd_norm.weight" : "output_norm.weight";
  tensors.push_back({std::string(last_norm), {spec.embedding}, WeightType::kF32, Values::kNorm});
  if (!spec.tied) {
    tensors.push_back({"output.weight", {spec.embedding, spec.vocabulary}, spec.type, Values::kWeights});
  }
  for (uint32_t layer = 0; layer < spec.layers; ++layer) AddLayerTensors(spec, layer, tensors);
  return tensors;
}

}  // namespace bulkhead::tools
