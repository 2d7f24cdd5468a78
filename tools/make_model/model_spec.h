// The shape of a model to be made, and the tensors that shape has.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/gguf/weight_type.h"

namespace bulkhead::tools {

struct ModelSpec {
  std::string name = "random";
  std::string architecture = "llama";                   // one of ArchitectureNames()
  engine::WeightType type = engine::WeightType::kQ8_0;  // of those the kernels know; norms are always F32
  uint32_t layers = 2;
  uint32_t embedding = 256;
  uint32_t feed_forward = 512;
  uint32_t heads = 8;
  uint32_t kv_heads = 2;
  uint32_t head = 32;
  // Layers that carry a state (mamba2, granitehybrid, lfm2, qwen35, qwen3next).
  uint32_t attention_every = 4;  // layer i of a hybrid attends where i + 1 is a multiple
  uint32_t inner = 256;          // width of what they mix
  uint32_t state = 32;
  uint32_t state_heads = 4;
  uint32_t state_groups = 2;
  uint32_t taps = 4;
  // A mixture (granitehybrid, qwen3next): feed_forward is one expert's, and the shared one's.
  uint32_t experts = 0;
  uint32_t experts_used = 2;
  uint32_t context = 2048;
  uint32_t vocabulary = 512;
  std::string tokenizer = "bpe";  // bpe or spm
  bool chatml = true;             // the file carries a ChatML template
  bool tied = false;              // no output.weight: the embedding serves for it
  float rope_base = 10000;
  float rms_epsilon = 1e-5f;
  uint64_t seed = 1;
};

// Names of the shapes NamedShape knows.
std::vector<std::string_view> ShapeNames();
// A well-known shape: "small", "qwen3-0.6b", "qwen3-1.7b", "llama-1b". kInvalidRequest for another name.
absl::StatusOr<ModelSpec> NamedShape(std::string_view name);

// kInvalidRequest naming the field that makes no model.
absl::Status Validate(const ModelSpec& spec);

enum class Values : uint8_t {
  kWeights,
  kNorm,   // around 1
  kDecay,  // around -1
};

struct TensorSpec {
  std::string name;
  std::vector<uint64_t> dims;
  engine::WeightType type;
  Values values;
};

// In the order in which the file holds them.
std::vector<TensorSpec> TensorsOf(const ModelSpec& spec);

}  // namespace bulkhead::tools
