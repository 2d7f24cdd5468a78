// The facts of a model's header that its computation depends on, read from the metadata and checked: every number here
// is within the limits below, whatever the file said.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/kernels.h"

namespace bulkhead::engine {

class GgufFile;

enum class Architecture : uint8_t { kLlama, kQwen3, kMamba2, kGraniteHybrid, kLfm2, kQwen35, kQwen3Next };

// What mixes a layer's tokens: attention reads keys and values of all positions, the others a state of fixed size.
enum class LayerKind : uint8_t {
  kAttention,
  kMamba2,     // selective state space (Dao and Gu, "Transformers are SSMs", 2024)
  kShortConv,  // a gated convolution over the last tokens (LFM2)
  kDeltaNet,   // gated delta rule (Yang, Kautz, Hatamizadeh, "Gated Delta Networks", 2024)
};

// Sizes of the recurrent layers.
struct RecurrentShape {
  uint32_t taps = 0;         // tokens the convolution sees, its own included
  uint32_t inner = 0;        // width of what is mixed: heads * inner_head()
  uint32_t state = 0;        // of a head: the state's columns (kDeltaNet: the key's size)
  uint32_t heads = 0;        // of the mixed values
  uint32_t groups = 0;       // heads of B and C (kMamba2), of queries and keys (kDeltaNet)
  bool tiled_heads = false;  // kDeltaNet: value head h has key head h mod groups, else h div (heads / groups)
  [[nodiscard]] uint32_t inner_head() const { return heads == 0 ? 0 : inner / heads; }
};

// Feed-forward parts that a router chooses among, token by token.
struct MixtureShape {
  uint32_t experts = 0;  // 0: no mixture
  uint32_t used = 0;
  uint32_t feed_forward = 0;         // of one expert
  uint32_t shared_feed_forward = 0;  // of the one that every token takes; 0: none
  bool gated_shared = false;         // that one's output has a gate of its own
};

struct ModelConfig {
  static constexpr uint32_t kMaxLayers = 1024;
  static constexpr uint32_t kMaxHeads = 1024;
  static constexpr uint32_t kMaxHeadSize = 256;
  static constexpr uint32_t kMaxWidth = 1u << 20;
  static constexpr uint32_t kMaxVocabulary = 1u << 22;
  static constexpr uint32_t kMaxContext = 1u << 24;
  static constexpr uint32_t kMaxTaps = 64;
  static constexpr uint32_t kMaxExperts = 1024;

  Architecture architecture = Architecture::kLlama;
  std::string architecture_name;
  std::string name;  // general.name, may be empty
  uint32_t layers = 0;
  std::vector<LayerKind> kinds;  // of each layer
  uint32_t embedding = 0;
  uint32_t heads = 0;  // 0 where no layer attends; likewise kv_heads and head_size
  uint32_t kv_heads = 0;
  uint32_t head_size = 0;     // of keys and values alike
  uint32_t feed_forward = 0;  // 0: layers have none, or a mixture
  uint32_t vocabulary = 0;
  uint32_t trained_context = 0;
  float norm_epsilon = 0;
  bool head_norms = false;       // queries and keys are normalised per head
  bool gated_attention = false;  // each query head comes with a gate of its size
  kernels::RopePairing rope_pairing = kernels::RopePairing::kNorm;
  uint32_t rope_dimensions = 0;  // 0: positions turn nothing
  float rope_base = 0;
  float attention_scale = 0;
  float embedding_scale = 1;  // multiplies the embedding
  float residual_scale = 1;   // what each part of a layer is multiplied by before it is added
  float logit_divisor = 1;
  RecurrentShape recurrent;
  MixtureShape mixture;

  // Attention works on heads of a multiple of 16; the rest of a smaller one is zeros.
  [[nodiscard]] uint32_t padded_head_size() const { return (head_size + 15) / 16 * 16; }
  [[nodiscard]] uint32_t attention_layers() const;
  [[nodiscard]] bool is_recurrent() const { return attention_layers() != layers; }

  // Of a recurrent layer: channels of its convolution, columns of its input projection, floats of its state (the last
  // taps - 1 inputs of the convolution, then `scanned_floats`).
  [[nodiscard]] uint32_t conv_channels(LayerKind kind) const;
  [[nodiscard]] uint32_t projected(LayerKind kind) const;
  [[nodiscard]] uint64_t conv_state_floats(LayerKind kind) const;
  [[nodiscard]] uint64_t scanned_floats(LayerKind kind) const;
  // Floats of all layers' state; a layer's begins at a multiple of 16.
  [[nodiscard]] uint64_t state_floats() const;

  // kModelUnsupported for an architecture or option we cannot run, kModelInvalid for numbers that make no sense.
  static absl::StatusOr<ModelConfig> Read(const GgufFile& file);
};

}  // namespace bulkhead::engine
