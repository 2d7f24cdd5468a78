// The facts of a model's header that its computation depends on, read from the metadata and checked: every number here
// is within the limits below, whatever the file said.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace bulkhead::gguf {
class File;
}

namespace bulkhead::engine {

enum class Architecture : uint8_t { kLlama, kQwen3 };

// Which elements a rotation pairs: neighbours (2i, 2i+1) or halves (i, i + n/2).
enum class RopePairing : uint8_t { kNeighbours, kHalves };

struct ModelConfig {
  static constexpr uint32_t kMaxLayers = 1024;
  static constexpr uint32_t kMaxHeads = 1024;
  static constexpr uint32_t kMaxHeadSize = 1024;
  static constexpr uint32_t kMaxWidth = 1u << 20;
  static constexpr uint32_t kMaxVocabulary = 1u << 22;

  Architecture architecture = Architecture::kLlama;
  std::string name;
  uint32_t layers = 0;
  uint32_t embedding = 0;
  uint32_t heads = 0;
  uint32_t kv_heads = 0;
  uint32_t key_length = 0;
  uint32_t value_length = 0;
  uint32_t feed_forward = 0;
  uint32_t vocabulary = 0;
  uint32_t trained_context = 0;
  float norm_epsilon = 0;
  RopePairing rope_pairing = RopePairing::kNeighbours;
  uint32_t rope_dimensions = 0;
  float rope_base = 0;

  // kModelUnsupported for an architecture or option we cannot run, kModelInvalid for numbers that make no sense.
  static absl::StatusOr<ModelConfig> Read(const gguf::File& file);
};

}  // namespace bulkhead::engine
