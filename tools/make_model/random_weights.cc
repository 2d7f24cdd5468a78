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

// As Q4_0 with one bit more.
void FillQ5(double deviation, RandomBits& random, std::span<std::byte> out) {
  const int exponent = ExponentOf(deviation / 9.23 / 1.53);
  for (size_t at = 0; at + 22 <= out.size(); at += 22) {
    const uint64_t bits = random.Next();
    const uint16_t scale = HalfOf(exponent, (bits >> 32) & 1, static_cast<uint32_t>(bits));
    const uint64_t high = random.Next();
    Store(&out[at], &scale, sizeof(scale));
    Store(&out[at + 2], &high, 4);
    FillBytes(random, &out[at + 6], 16);
  }
}

// Each block's minimum is its scale's factor times a half that is 7.5 scales, so that the weights' mean is 0. Factors
// 0..63 have a root mean square of 36.5, the quants' deviation is 4.6.
void FillQ4K(double deviation, RandomBits& random, std::span<std::byte> out) {
  const int exponent = ExponentOf(deviation / 168 / 1.53);
  for (size_t at = 0; at + 144 <= out.size(); at += 144) {
    // 7.5 times a scale whose mantissa has three zeros at its end is a half; its mantissa's first bits say which.
    const uint32_t mantissa = static_cast<uint32_t>(random.Next()) & 0x3f8;
    const uint32_t product = (1024 + mantissa) * 15;  // times 2^(exponent - 11)
    const int up = product >= 16384 ? 1 : 0;
    const uint16_t halves[2] = {HalfOf(exponent, 0, mantissa), HalfOf(exponent + 2 + up, 0, product >> (3 + up))};
    Store(&out[at], halves, sizeof(halves));
    uint8_t factors[8];
    FillBytes(random, reinterpret_cast<std::byte*>(factors), sizeof(factors));
    uint8_t packed[12];
    for (int i = 0; i < 4; ++i) {
      const uint8_t low = factors[i] & 63;
      const uint8_t high = factors[i + 4] & 63;
      packed[i] = packed[i + 4] = static_cast<uint8_t>(low | (high >> 4) << 6);
      packed[i + 8] = static_cast<uint8_t>((high & 15) | (high & 15) << 4);
    }
    Store(&out[at + 4], packed, sizeof(packed));
    FillBytes(random, &out[at + 16], 128);
  }
}

// Scales -32..31 and quants -32..31, both with a deviation of 18.5.
void FillQ6K(double deviation, RandomBits& random, std::span<std::byte> out) {
  const int exponent = ExponentOf(deviation / 342 / 1.53);
  for (size_t at = 0; at + 210 <= out.size(); at += 210) {
    std::byte* block = &out[at];
    FillBytes(random, block, 208);
    for (int i = 192; i < 208; ++i) {
      const auto scale = static_cast<int8_t>((std::to_integer<int>(block[i]) & 63) - 32);
      Store(block + i, &scale, 1);
    }
    const uint16_t scale = HalfOf(exponent, 0, static_cast<uint32_t>(random.Next()));
    Store(block + 208, &scale, sizeof(scale));
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
    case WeightType::kQ5_0:
      return FillQ5(deviation, random, out);
    case WeightType::kQ4_K:
      return FillQ4K(deviation, random, out);
    case WeightType::kQ6_K:
      return FillQ6K(deviation, random, out);
    default:
      return FillQ4(deviation, random, out);
  }
}

void FillNorm(RandomBits& random, float sign, std::span<std::byte> out) {
  for (size_t at = 0; at + sizeof(float) <= out.size(); at += sizeof(float)) {
    const float value = sign * (0.75f + 0.5f * static_cast<float>(random.Next() >> 40) * 0x1p-24f);
    Store(&out[at], &value, sizeof(value));
  }
}

}  // namespace bulkhead::tools
