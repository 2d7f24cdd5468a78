// Random weights as a benchmark and a digest need them: every quantised value and every mantissa bit is used, no page
// is constant, and a row of K weights has a standard deviation of about 1/sqrt(K), so that activations keep their size
// through the layers. The bytes are a function of (seed, name, position) alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "engine/gguf/weight_type.h"

namespace bulkhead::tools {

// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014).
class RandomBits {
 public:
  explicit RandomBits(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // In [0, bound), bound below 2^32.
  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>(((Next() >> 32) * bound) >> 32); }

 private:
  uint64_t state_;
};

uint64_t HashName(uint64_t seed, std::string_view name);

// Fills `out`, whole blocks of `type` (a type Validate knows), with weights of rows `row` long.
void FillWeights(engine::WeightType type, uint64_t row, RandomBits& random, std::span<std::byte> out);

// Fills `out` with F32 values between 0.75 and 1.25, times `sign`.
void FillNorm(RandomBits& random, float sign, std::span<std::byte> out);

}  // namespace bulkhead::tools
