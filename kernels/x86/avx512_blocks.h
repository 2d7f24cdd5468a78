// The block types' integer dots with VNNI. vpdpbusd takes unsigned weights and sums exactly to 32 bits, so Q8_0 weights
// are shifted by 128 and Q4_0's by 8, and the activations' sum takes the shift out again.
#pragma once

#include "kernels/x86/super_blocks.h"

namespace bulkhead::kernels {
namespace {

// One block: 16 rows of unsigned weights with kTokens tokens, added to dots.
template <int kTokens>
inline void FourDots(const uint8_t* panel, const int8_t* a, size_t a_stride, __m512i* dots) {
  for (int step = 0; step < 8; ++step) {
    const __m512i weights = _mm512_loadu_si512(panel + step * 64);
    for (int t = 0; t < kTokens; ++t) {
      int32_t four;
      __builtin_memcpy(&four, a + t * a_stride + step * 4, sizeof four);
      dots[t] = _mm512_dpbusd_epi32(dots[t], weights, _mm512_set1_epi32(four));
    }
  }
}

// What the types with one scale a block share: kShift is the logarithm of the weights' shift.
template <typename Type>
struct ShiftedBlocks {
  using Activation = int8_t;
  static constexpr bool kMinimums = false;
  static constexpr uint32_t kPanelBytes = 1;
  static constexpr uint32_t kPanelFromTokens = 4;  // fewer do not pay for the unpacking

  static __m256i Dot(const uint8_t* block, const int8_t* a) {
    return _mm256_dpbusd_epi32(_mm256_setzero_si256(), Type::Shifted(block), LoadBytes(a));
  }
  static __m256i Dot4(const uint8_t* row, const int8_t* a) {
    return SumEach4(Dot(row, a), Dot(row + Type::kBytes, a + 32), Dot(row + 2 * Type::kBytes, a + 64),
                    Dot(row + 3 * Type::kBytes, a + 96));
  }
  static __m256i Correct(__m256i dots, __m256i sums) {
    return _mm256_sub_epi32(dots, _mm256_slli_epi32(sums, Type::kShift));
  }

  // Eight rows: 8 steps of [row][four bytes], 64 bytes apart.
  static void Unpack(const uint8_t* const* blocks, uint8_t* panel) {
    __m256i x[8];
    for (int i = 0; i < 8; ++i) x[i] = Type::Shifted(blocks[i]);
    TransposeFours(x);
    for (int i = 0; i < 8; ++i) StoreBytes(panel + i * 64, x[i]);
  }

  template <int kTokens>
  static void PanelDots(const uint8_t* panel, const int8_t* a, size_t a_stride, const int32_t* sum, size_t sum_stride,
                        __m512i* dots) {
    for (int t = 0; t < kTokens; ++t) dots[t] = _mm512_set1_epi32(-(sum[t * sum_stride] << Type::kShift));
    FourDots<kTokens>(panel, a, a_stride, dots);
  }
};

struct Q8Blocks : ShiftedBlocks<Q8Blocks> {
  static constexpr int kBytes = 34;
  static constexpr int kShift = 7;

  static __m256i Integers(const uint8_t* block) { return LoadBytes(block + 2); }
  static __m256i Shifted(const uint8_t* block) { return _mm256_xor_si256(Integers(block), _mm256_set1_epi8(-128)); }
};

struct Q5Blocks : ShiftedBlocks<Q5Blocks> {
  static constexpr int kBytes = 22;
  static constexpr int kShift = 4;

  static __m256i Shifted(const uint8_t* block) { return FiveBits(block); }
  static __m256i Integers(const uint8_t* block) { return _mm256_sub_epi8(Shifted(block), _mm256_set1_epi8(16)); }
};

struct Q4Blocks : ShiftedBlocks<Q4Blocks> {
  static constexpr int kBytes = 18;
  static constexpr int kShift = 3;

  static __m256i Shifted(const uint8_t* block) { return Nibbles(block); }
  static __m256i Integers(const uint8_t* block) { return _mm256_sub_epi8(Nibbles(block), _mm256_set1_epi8(8)); }
  static void Unpack(const uint8_t* const* blocks, uint8_t* panel) { UnpackNibbles(blocks, panel); }
};

struct Q4KBlocks : Q4KSuper {
  using Activation = int8_t;
  static constexpr uint32_t kPanelFromTokens = 4;

  template <int kTokens>
  static void PanelDots(const uint8_t* panel, const int8_t* a, size_t a_stride, const int32_t* /*sum*/,
                        size_t /*sum_stride*/, __m512i* dots) {
    for (int t = 0; t < kTokens; ++t) dots[t] = _mm512_set1_epi32(0);
    FourDots<kTokens>(panel, a, a_stride, dots);
  }
};

struct Q6KBlocks : Q6KSuper {
  static constexpr uint32_t kPanelFromTokens = 6;

  template <int kTokens>
  static void PanelDots(const uint8_t* panel, const int16_t* a, size_t a_stride, const int32_t* /*sum*/,
                        size_t /*sum_stride*/, __m512i* dots) {
    for (int t = 0; t < kTokens; ++t) dots[t] = _mm512_set1_epi32(0);
    for (int step = 0; step < 16; ++step) {
      const __m512i weights = _mm512_loadu_si512(panel + step * 64);
      for (int t = 0; t < kTokens; ++t) {
        int32_t pair;
        __builtin_memcpy(&pair, a + t * a_stride + step * 2, sizeof pair);
        dots[t] = _mm512_add_epi32(dots[t], _mm512_madd_epi16(weights, _mm512_set1_epi32(pair)));
      }
    }
  }
};

template <typename Format, int kTokens>
inline void PanelTile(const Panel& panel, const Activations& x, uint32_t token, uint32_t rows, const uint8_t* next,
                      float* out, size_t out_stride) {
  constexpr size_t kBlock = size_t{32} * kPanelRows * Format::kPanelBytes;
  const size_t blocks = x.cols / 32;
  const auto* a = TileActivations(x, token, kTokens, panel, static_cast<const typename Format::Activation*>(nullptr));
  const float* scale = x.q8_scale + token * blocks;
  const int32_t* sum = x.q8_sum + token * blocks;
  __m512 chains[kBlockChains][kTokens];
  for (auto& chain : chains) {
    for (auto& lanes : chain) lanes = _mm512_setzero_ps();
  }
  for (uint32_t b = 0; b < blocks; ++b) {
    if (token == 0) FetchNext<Format>(next, b);
    __m512i dots[kTokens];
    Format::template PanelDots<kTokens>(panel.weights + b * kBlock, a + size_t{b} * 32, x.cols, sum + b, blocks, dots);
    const __m512 weight_scales = _mm512_loadu_ps(panel.scales + b * kPanelRows);
    auto& chain = chains[b % kBlockChains];
    for (int t = 0; t < kTokens; ++t) {
      const __m512 scales = _mm512_mul_ps(weight_scales, _mm512_set1_ps(scale[t * blocks + b]));
      chain[t] = _mm512_fmadd_ps(scales, _mm512_cvtepi32_ps(dots[t]), chain[t]);
      if constexpr (Format::kMinimums) {
        const __m512 minimums =
            _mm512_mul_ps(_mm512_loadu_ps(panel.minimums + b * kPanelRows), _mm512_set1_ps(scale[t * blocks + b]));
        chain[t] = _mm512_fmadd_ps(minimums, _mm512_set1_ps(static_cast<float>(sum[t * blocks + b])), chain[t]);
      }
    }
  }
  for (int t = 0; t < kTokens; ++t) {
    const __m512 whole =
        _mm512_add_ps(_mm512_add_ps(chains[0][t], chains[1][t]), _mm512_add_ps(chains[2][t], chains[3][t]));
    StoreRows(out + (token + t) * out_stride, _mm512_castps512_ps256(whole), HighHalf(whole), rows);
  }
}

}  // namespace
}  // namespace bulkhead::kernels
