// The weight types the kernels read in the file's own layout. The enumerators are the numbers of the GGUF format, so a
// tensor's type converts by a checked cast (FindWeightType). Stateless; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bulkhead::kernels {

enum class WeightType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ5_0 = 6,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ6_K = 14,
  kBF16 = 30,
};

// How a type wants its activations.
enum class ActivationFormat : uint8_t {
  kF32,        // as they are
  kQ8Group32,  // int8 with one float scale per 32 and the group's integer sum
};

struct WeightTypeInfo {
  WeightType type;
  const char* name;        // as GGUF tools print it
  uint32_t block_weights;  // weights per block; a row's length is a multiple of it
  uint32_t block_bytes;
  ActivationFormat activation;
};

// The row of `gguf_id`, or nullptr where the kernels do not know the type.
const WeightTypeInfo* FindWeightType(uint32_t gguf_id);

// `type` is one of the enumerators.
const WeightTypeInfo& InfoOf(WeightType type);

// Bytes of one row of `cols` weights; `cols` is a multiple of the type's block_weights.
size_t RowBytes(WeightType type, uint32_t cols);

}  // namespace bulkhead::kernels
