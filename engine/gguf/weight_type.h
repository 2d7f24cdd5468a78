// The storage types a tensor may have, and how many bytes their blocks take. Numbers are those of the file format
// (FORMATS: "GGUF facts"), but for kQ2_0Wide, which older files write under the number of kQ2_0.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace bulkhead::engine {

enum class WeightType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kIQ4_XS = 23,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kQ1_0 = 41,
  kQ2_0 = 42,
  kPQ2_0 = 142,
  kPTQ1_0 = 143,
  kQ2_0Wide = 0x1002a,  // written as 42: 128 weights in 34 bytes
};

struct WeightTypeInfo {
  WeightType type;
  std::string_view name;
  uint32_t block_weights;
  uint32_t block_bytes;
};

// The row of a type; nullptr for a number that is no type known here. Static, never freed.
const WeightTypeInfo* FindWeightType(uint32_t number);
const WeightTypeInfo& InfoOf(WeightType type);
std::string_view NameOf(WeightType type);

// Bytes of `weights` consecutive weights; nullopt where they are no whole number of blocks or the product overflows.
std::optional<uint64_t> BytesOf(WeightType type, uint64_t weights);

}  // namespace bulkhead::engine
