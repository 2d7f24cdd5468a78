#include "kernels/weight_type.h"

#include <algorithm>
#include <iterator>

namespace bulkhead::kernels {
namespace {

constexpr WeightTypeInfo kTypes[] = {
    {WeightType::kF32, "F32", 1, 4, ActivationFormat::kF32},
    {WeightType::kF16, "F16", 1, 2, ActivationFormat::kF32},
    {WeightType::kQ4_0, "Q4_0", 32, 18, ActivationFormat::kQ8Group32},
    {WeightType::kQ5_0, "Q5_0", 32, 22, ActivationFormat::kQ8Group32},
    {WeightType::kQ8_0, "Q8_0", 32, 34, ActivationFormat::kQ8Group32},
    {WeightType::kQ4_K, "Q4_K", 256, 144, ActivationFormat::kQ8Group32},
    {WeightType::kQ6_K, "Q6_K", 256, 210, ActivationFormat::kQ8Group32},
    {WeightType::kBF16, "BF16", 1, 2, ActivationFormat::kF32},
};

}  // namespace

const WeightTypeInfo* FindWeightType(uint32_t gguf_id) {
  const auto* row = std::find_if(std::begin(kTypes), std::end(kTypes), [gguf_id](const WeightTypeInfo& info) {
    return static_cast<uint32_t>(info.type) == gguf_id;
  });
  return row == std::end(kTypes) ? nullptr : row;
}

const WeightTypeInfo& InfoOf(WeightType type) { return *FindWeightType(static_cast<uint32_t>(type)); }

size_t RowBytes(WeightType type, uint32_t cols) {
  const WeightTypeInfo& info = InfoOf(type);
  return size_t{cols} / info.block_weights * info.block_bytes;
}

}  // namespace bulkhead::kernels
