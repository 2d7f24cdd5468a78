// The block types' integer dots with VNNI. vpdpbusd takes unsigned weights and sums exactly to 32 bits, so Q8_0 weights
// are shifted by 128 and Q4_0's by 8, and the activations' sum takes the shift out again.
#pragma once

#include "kernels/x86/panel.h"

namespace bulkhead::kernels {
namespace {

// What the two types share: kShift is the logarithm of the weights' shift.
template <typename Type>
struct ShiftedBlocks {
  using Activation = int8_t;
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
};

struct Q8Blocks : ShiftedBlocks<Q8Blocks> {
  static constexpr int kBytes = 34;
  static constexpr int kShift = 7;

  static __m256i Integers(const uint8_t* block) { return LoadBytes(block + 2); }
  static __m256i Shifted(const uint8_t* block) { return _mm256_xor_si256(Integers(block), _mm256_set1_epi8(-128)); }

  // Eight rows: 8 steps of [row][four bytes], 64 bytes apart.
  static void Unpack(const uint8_t* const* blocks, uint8_t* panel) {
    __m256i x[8], y[8];
    for (int i = 0; i < 8; ++i) x[i] = Shifted(blocks[i]);
    for (int i = 0; i < 4; ++i) {
      y[2 * i] = _mm256_unpacklo_epi32(x[2 * i], x[2 * i + 1]);
      y[2 * i + 1] = _mm256_unpackhi_epi32(x[2 * i], x[2 * i + 1]);
    }
    for (int i = 0; i < 2; ++i) {
      x[4 * i] = _mm256_unpacklo_epi64(y[4 * i], y[4 * i + 2]);
      x[4 * i + 1] = _mm256_unpackhi_epi64(y[4 * i], y[4 * i + 2]);
      x[4 * i + 2] = _mm256_unpacklo_epi64(y[4 * i + 1], y[4 * i + 3]);
      x[4 * i + 3] = _mm256_unpackhi_epi64(y[4 * i + 1], y[4 * i + 3]);
    }
    for (int i = 0; i < 4; ++i) {
      StoreBytes(panel + i * 64, _mm256_permute2x128_si256(x[i], x[i + 4], 0x20));
      StoreBytes(panel + (i + 4) * 64, _mm256_permute2x128_si256(x[i], x[i + 4], 0x31));
    }
  }
};

struct Q4Blocks : ShiftedBlocks<Q4Blocks> {
  static constexpr int kBytes = 18;
  static constexpr int kShift = 3;

  static __m256i Shifted(const uint8_t* block) { return Nibbles(block); }
  static __m256i Integers(const uint8_t* block) { return _mm256_sub_epi8(Nibbles(block), _mm256_set1_epi8(8)); }
  static void Unpack(const uint8_t* const* blocks, uint8_t* panel) { UnpackNibbles(blocks, panel); }
};

template <typename Format, int kTokens>
inline void PanelTile(const Panel& panel, const Activations& x, uint32_t token, uint32_t rows, const uint8_t* next,
                      float* out, size_t out_stride) {
  constexpr size_t kBlock = size_t{32} * kPanelRows;
  const size_t blocks = x.cols / 32;
  const int8_t* a = x.q8 + size_t{token} * x.cols;
  const float* scale = x.q8_scale + token * blocks;
  const int32_t* sum = x.q8_sum + token * blocks;
  __m512 chains[kBlockChains][kTokens];
  for (auto& chain : chains) {
    for (auto& lanes : chain) lanes = _mm512_setzero_ps();
  }
  for (uint32_t b = 0; b < blocks; ++b) {
    if (token == 0) FetchNext<Format>(next, b);
    __m512i dots[kTokens];
    for (int t = 0; t < kTokens; ++t) dots[t] = _mm512_set1_epi32(-(sum[t * blocks + b] << Format::kShift));
    for (int step = 0; step < 8; ++step) {
      const __m512i weights = _mm512_loadu_si512(panel.weights + b * kBlock + step * 64);
      for (int t = 0; t < kTokens; ++t) {
        int32_t four;
        __builtin_memcpy(&four, a + t * size_t{x.cols} + size_t{b} * 32 + step * 4, sizeof four);
        dots[t] = _mm512_dpbusd_epi32(dots[t], weights, _mm512_set1_epi32(four));
      }
    }
    const __m512 weight_scales = _mm512_loadu_ps(panel.scales + b * kPanelRows);
    auto& chain = chains[b % kBlockChains];
    for (int t = 0; t < kTokens; ++t) {
      const __m512 scales = _mm512_mul_ps(weight_scales, _mm512_set1_ps(scale[t * blocks + b]));
      chain[t] = _mm512_fmadd_ps(scales, _mm512_cvtepi32_ps(dots[t]), chain[t]);
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
