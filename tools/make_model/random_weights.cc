#include "tools/make_model/random_weights.h"

#include <cmath>
#include <cstring>

namespace bulkhead::tools {
namespace {

using engine::WeightType;

void Store(std::byte* at, const void* value, size_t size) { std::memcpy(at, value, size); }

// A half whose exponent is `exponent` (of two) and whose mantissa and sign are random bits.
uint16_t HalfOf(int exponent, uint32_t sign, uint32_t mantissa) {
  return static_cast<uint16_t>(sign << 15 | static_cast<uint32_t>(exponent + 15) << 10 | (mantissa & 0x3ff));
}

int ExponentOf(double value) {
  const int exponent = static_cast<int>(std::lround(std::log2(value)));
  return exponent < -13 ? -13 : exponent;
}

// Floats of any width: sign and mantissa random, exponent one of four from `top` downwards. Mean square of
// (1 + m)^2 * 4^-j over m in [0, 1), j in 0..3 is 0.775, so the deviation is 0.88 * 2^top.
template <typename Word, int kMantissaBits, int kBias>
void FillFloats(double deviation, RandomBits& random, std::span<std::byte> out) {
  const int top = ExponentOf(deviation / 0.88);
  constexpr int kSignBit = static_cast<int>(sizeof(Word)) * 8 - 1;
  for (size_t at = 0; at + sizeof(Word) <= out.size(); at += sizeof(Word)) {
    const uint64_t bits = random.Next();
    const auto exponent = static_cast<uint64_t>(top - static_cast<int>(bits & 3) + kBias);
    const uint64_t sign = (bits >> 2) & 1;
    const uint64_t mantissa = (bits >> 3) & ((uint64_t{1} << kMantissaBits) - 1);
    const auto word = static_cast<Word>(sign << kSignBit | exponent << kMantissaBits | mantissa);
    Store(&out[at], &word, sizeof(word));
  }
}

void FillBytes(RandomBits& random, std::byte* out, size_t size) {
  for (size_t i = 0; i < size; i += sizeof(uint64_t)) {
    const uint64_t bits = random.Next();
    Store(out + i, &bits, sizeof(bits));
  }
}

// Uniform int8 has a deviation of 73.6; the scale's own spread multiplies that by 1.53.
void FillQ8(double deviation, RandomBits& random, std::span<std::byte> out) {
  const int exponent = ExponentOf(deviation / 73.6 / 1.53);
  for (size_t at = 0; at + 34 <= out.size(); at += 34) {
    const uint16_t scale = HalfOf(exponent, 0, static_cast<uint32_t>(random.Next()));
    Store(&out[at], &scale, sizeof(scale));
    std::byte* quants = &out[at + 2];
    FillBytes(random, quants, 32);
    // A quantiser scales to +-127, so -128 does not occur.
    for (int i = 0; i < 32; ++i) {
      if (quants[i] == std::byte{0x80}) quants[i] = std::byte{0x81};
    }
  }
}

// Uniform 4-bit quants less 8 have a deviation of 4.6 around -0.5; signed scales keep the mean of the weights at 0.
void FillQ4(double deviation, RandomBits& random, std::span<std::byte> out) {
  const int exponent = ExponentOf(deviation / 4.64 / 1.53);
  for (size_t at = 0; at + 18 <= out.size(); at += 18) {
    const uint64_t bits = random.Next();
    const uint16_t scale = HalfOf(exponent, (bits >> 32) & 1, static_cast<uint32_t>(bits));
    Store(&out[at], &scale, sizeof(scale));
    FillBytes(random, &out[at + 2], 16);
  }
}

}  // namespace

uint64_t HashName(uint64_t seed, std::string_view name) {
  uint64_t hash = RandomBits(seed).Next();
  for (const char c : name) hash = RandomBits(hash ^ static_cast<unsigned char>(c)).Next();
  return hash;
}

void FillWeights(WeightType type, uint64_t row, RandomBits& random, std::span<std::byte> out) {
  const double deviation = 1 / std::sqrt(static_cast<double>(row));
  switch (type) {
    case WeightType::kF32:
      return FillFloats<uint32_t, 23, 127>(deviation, random, out);
    case WeightType::kF16:
      return FillFloats<uint16_t, 10, 15>(deviation, random, out);
    case WeightType::kBF16:
      return FillFloats<uint16_t, 7, 127>(deviation, random, out);
    case WeightType::kQ8_0:
      return FillQ8(deviation, random, out);
    default:
      return FillQ4(deviation, random, out);
  }
}

void FillNorm(RandomBits& random, std::span<std::byte> out) {
  for (size_t at = 0; at + sizeof(float) <= out.size(); at += sizeof(float)) {
    const float value = 0.75f + 0.5f * static_cast<float>(random.Next() >> 40) * 0x1p-24f;
    Store(&out[at], &value, sizeof(value));
  }
}

}  // namespace bulkhead::tools
