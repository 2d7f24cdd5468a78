#include "engine/gguf/weight_type.h"

#include <algorithm>
#include <array>

#include "base/checked.h"

namespace bulkhead::engine {
namespace {

constexpr std::array kTable = {
    WeightTypeInfo{WeightType::kF32, "F32", 1, 4},
    WeightTypeInfo{WeightType::kF16, "F16", 1, 2},
    WeightTypeInfo{WeightType::kQ4_0, "Q4_0", 32, 18},
    WeightTypeInfo{WeightType::kQ4_1, "Q4_1", 32, 20},
    WeightTypeInfo{WeightType::kQ5_0, "Q5_0", 32, 22},
    WeightTypeInfo{WeightType::kQ5_1, "Q5_1", 32, 24},
    WeightTypeInfo{WeightType::kQ8_0, "Q8_0", 32, 34},
    WeightTypeInfo{WeightType::kQ2_K, "Q2_K", 256, 84},
    WeightTypeInfo{WeightType::kQ3_K, "Q3_K", 256, 110},
    WeightTypeInfo{WeightType::kQ4_K, "Q4_K", 256, 144},
    WeightTypeInfo{WeightType::kQ5_K, "Q5_K", 256, 176},
    WeightTypeInfo{WeightType::kQ6_K, "Q6_K", 256, 210},
    WeightTypeInfo{WeightType::kIQ4_NL, "IQ4_NL", 32, 18},
    WeightTypeInfo{WeightType::kIQ4_XS, "IQ4_XS", 256, 136},
    WeightTypeInfo{WeightType::kBF16, "BF16", 1, 2},
    WeightTypeInfo{WeightType::kTQ1_0, "TQ1_0", 256, 54},
    WeightTypeInfo{WeightType::kTQ2_0, "TQ2_0", 256, 66},
    WeightTypeInfo{WeightType::kMXFP4, "MXFP4", 32, 17},
    WeightTypeInfo{WeightType::kQ1_0, "Q1_0", 128, 18},
    WeightTypeInfo{WeightType::kQ2_0, "Q2_0", 64, 18},
    WeightTypeInfo{WeightType::kPQ2_0, "PQ2_0", 128, 34},
    WeightTypeInfo{WeightType::kPTQ1_0, "PTQ1_0", 128, 28},
    WeightTypeInfo{WeightType::kQ2_0Wide, "Q2_0/128", 128, 34},
};

}  // namespace

const WeightTypeInfo* FindWeightType(uint32_t number) {
  const auto* row = std::find_if(kTable.begin(), kTable.end(),
                                 [&](const auto& r) { return static_cast<uint32_t>(r.type) == number; });
  return row == kTable.end() ? nullptr : row;
}

const WeightTypeInfo& InfoOf(WeightType type) { return *FindWeightType(static_cast<uint32_t>(type)); }

std::string_view NameOf(WeightType type) { return InfoOf(type).name; }

std::optional<uint64_t> BytesOf(WeightType type, uint64_t weights) {
  const WeightTypeInfo& info = InfoOf(type);
  if (weights % info.block_weights != 0) return std::nullopt;
  return CheckedMul<uint64_t>(weights / info.block_weights, info.block_bytes);
}

}  // namespace bulkhead::engine
