// Seeded inputs for the kernel tests: weights of any type as they would stand in a file, and activations with the
// extremes real data has. Same seed, same data.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "kernels/kernels.h"

namespace bulkhead::kernels::testing {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>(engine_() % bound); }
  float Normal() { return normal_(engine_); }

  // Mostly normal values; now and then zeros of both signs, subnormals and large magnitudes.
  float Value();
  std::vector<float> Values(size_t count);
  std::vector<float> Normals(size_t count, float scale);

 private:
  std::mt19937_64 engine_;
  std::normal_distribution<float> normal_;
};

float HalfToFloat(uint16_t half);
uint16_t FloatToHalf(float x);

// Whether this byte of a block type's block is part of a scale or minimum in half precision.
bool HoldsHalf(WeightType type, uint32_t byte);

// rows x cols weights of `type`; bytes of quantised blocks take every value, scales are finite, of both signs, some
// zero or subnormal.
std::vector<uint8_t> MakeWeights(Random& random, WeightType type, uint32_t rows, uint32_t cols);

// Quantised activations that own their memory.
struct OwnedActivations {
  std::vector<float> f32;
  std::vector<int8_t> q8;
  std::vector<float> scale;
  std::vector<int32_t> sum;
  Activations view;
};
OwnedActivations MakeActivations(const KernelTable& kernels, const std::vector<float>& x, uint32_t tokens,
                                 uint32_t cols);

// 64-byte aligned scratch of at least `bytes`.
class Scratch {
 public:
  explicit Scratch(size_t bytes) : memory_(bytes + 64) {}
  void* data() { return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(memory_.data()) + 63) / 64 * 64); }

 private:
  std::vector<uint8_t> memory_;
};

}  // namespace bulkhead::kernels::testing
