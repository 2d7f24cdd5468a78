#include "data.h"

#include <cmath>
#include <cstring>

#include "kernels/tiers.h"

namespace bulkhead::kernels::testing {

float Random::Value() {
  switch (Below(40)) {
    case 0:
      return 0.0f;
    case 1:
      return -0.0f;
    case 2:
      return Normal() * 0x1p-135f;
    case 3:
      return Normal() * 1000.0f;
    default:
      return Normal();
  }
}

std::vector<float> Random::Values(size_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = Value();
  return values;
}

std::vector<float> Random::Normals(size_t count, float scale) {
  std::vector<float> values(count);
  for (float& value : values) value = Normal() * scale;
  return values;
}

float HalfToFloat(uint16_t half) {
  float out;
  kReferenceKernels.dequantise(WeightType::kF16, &half, 1, &out);
  return out;
}

uint16_t FloatToHalf(float x) {
  uint16_t half;
  kReferenceKernels.store_kv(&x, 1, KvType::kF16, &half);
  return half;
}

bool HoldsHalf(WeightType type, uint32_t byte) {
  if (type == WeightType::kQ6_K) return byte >= 208;
  return byte < (type == WeightType::kQ4_K ? 4U : 2U);
}

std::vector<uint8_t> MakeWeights(Random& random, WeightType type, uint32_t rows, uint32_t cols) {
  const WeightTypeInfo& info = InfoOf(type);
  std::vector<uint8_t> bytes(rows * RowBytes(type, cols));
  for (size_t at = 0; at < bytes.size(); at += info.block_bytes) {
    const float value = random.Value();
    const uint16_t half = FloatToHalf(value * 0.05f);
    uint8_t* block = bytes.data() + at;
    if (type == WeightType::kF32) {
      std::memcpy(block, &value, 4);
    } else if (type == WeightType::kF16) {
      std::memcpy(block, &half, 2);
    } else if (type == WeightType::kBF16) {
      std::memcpy(block, reinterpret_cast<const uint8_t*>(&value) + 2, 2);
    } else {
      for (uint32_t i = 0; i < info.block_bytes; ++i) block[i] = static_cast<uint8_t>(random.Below(256));
      const uint16_t halves[2] = {half, FloatToHalf(random.Value() * 0.05f)};
      for (uint32_t i = 0, written = 0; i < info.block_bytes; ++i) {
        if (HoldsHalf(type, i)) block[i] = reinterpret_cast<const uint8_t*>(halves)[written++];
      }
    }
  }
  return bytes;
}

OwnedActivations MakeActivations(const KernelTable& kernels, const std::vector<float>& x, uint32_t tokens,
                                 uint32_t cols) {
  OwnedActivations result;
  const uint32_t groups = cols / kActivationGroup;
  result.f32 = x;
  result.q8.resize(size_t{tokens} * cols);
  result.scale.resize(size_t{tokens} * groups);
  result.sum.resize(size_t{tokens} * groups);
  for (size_t t = 0; t < tokens; ++t) {
    kernels.quantise_q8(x.data() + t * cols, cols, result.q8.data() + t * cols, result.scale.data() + t * groups,
                        result.sum.data() + t * groups);
  }
  result.view = {.tokens = tokens,
                 .cols = cols,
                 .f32 = result.f32.data(),
                 .f32_stride = cols,
                 .q8 = result.q8.data(),
                 .q8_scale = result.scale.data(),
                 .q8_sum = result.sum.data()};
  return result;
}

}  // namespace bulkhead::kernels::testing
