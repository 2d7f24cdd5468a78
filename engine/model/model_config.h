// The facts of a model's header that its computation depends on, read from the metadata and checked: every number here
// is within the limits below, whatever the file said.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "kernels/kernels.h"

namespace bulkhead::engine {

class GgufFile;

enum class Architecture : uint8_t { kLlama, kQwen3 };

struct ModelConfig {
  static constexpr uint32_t kMaxLayers = 1024;
  static constexpr uint32_t kMaxHeads = 1024;
  static constexpr uint32_t kMaxHeadSize = 256;
  static constexpr uint32_t kMaxWidth = 1u << 20;
  static constexpr uint32_t kMaxVocabulary = 1u << 22;
  static constexpr uint32_t kMaxContext = 1u << 24;

  Architecture architecture = Architecture::kLlama;
  std::string architecture_name;
  std::string name;  // general.name, may be empty
  uint32_t layers = 0;
  uint32_t embedding = 0;
  uint32_t heads = 0;
  uint32_t kv_heads = 0;
  uint32_t head_size = 0;  // of keys and values alike
  uint32_t feed_forward = 0;
  uint32_t vocabulary = 0;
  uint32_t trained_context = 0;
  float norm_epsilon = 0;
  bool head_norms = false;  // queries and keys are normalised per head
  kernels::RopePairing rope_pairing = kernels::RopePairing::kNorm;
  uint32_t rope_dimensions = 0;
  float rope_base = 0;

  // Attention works on heads of a multiple of 16; the rest of a smaller one is zeros.
  [[nodiscard]] uint32_t padded_head_size() const { return (head_size + 15) / 16 * 16; }

  // kModelUnsupported for an architecture or option we cannot run, kModelInvalid for numbers that make no sense.
  static absl::StatusOr<ModelConfig> Read(const GgufFile& file);
};

}  // namespace bulkhead::engine
