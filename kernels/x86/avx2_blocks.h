// The block types' integer dots in AVX2, for one token (Dot4, see blocks.h) and for a panel of 16 rows times up to
// four tokens. vpmaddubsw saturates at 16 bits: for Q4_0 its sums stay small, for Q8_0 the decode side gives it
// magnitudes (at most 128 * 127 * 2) and the panel uses 16-bit weights and vpmaddwd instead. The K types' decode side
// stands in super_blocks.h.
#pragma once

#include "kernels/x86/super_blocks.h"

namespace bulkhead::kernels {
namespace {

// One block of int16 weights: 16 rows (two registers) with kTokens tokens.
template <int kTokens>
inline void PairDots(const uint8_t* panel, const int16_t* a, size_t a_stride, __m256i (*dots)[2]) {
  for (int t = 0; t < kTokens; ++t) dots[t][0] = dots[t][1] = _mm256_setzero_si256();
  for (int step = 0; step < 16; ++step) {
    const __m256i low = LoadBytes(panel + step * 64);
    const __m256i high = LoadBytes(panel + step * 64 + 32);
    for (int t = 0; t < kTokens; ++t) {
      int32_t pair;
      __builtin_memcpy(&pair, a + t * a_stride + step * 2, sizeof pair);
      const __m256i token = _mm256_set1_epi32(pair);
      dots[t][0] = _mm256_add_epi32(dots[t][0], _mm256_madd_epi16(low, token));
      dots[t][1] = _mm256_add_epi32(dots[t][1], _mm256_madd_epi16(high, token));
    }
  }
}

// One block of weights 0..15, whose sums fit 16 bits.
template <int kTokens>
inline void NibbleDots(const uint8_t* panel, const int8_t* a, size_t a_stride, __m256i (*dots)[2]) {
  for (int t = 0; t < kTokens; ++t) dots[t][0] = dots[t][1] = _mm256_setzero_si256();
  for (int step = 0; step < 8; ++step) {
    const __m256i low = LoadBytes(panel + step * 64);
    const __m256i high = LoadBytes(panel + step * 64 + 32);
    for (int t = 0; t < kTokens; ++t) {
      int32_t four;
      __builtin_memcpy(&four, a + t * a_stride + step * 4, sizeof four);
      const __m256i token = _mm256_set1_epi32(four);
      dots[t][0] = _mm256_add_epi16(dots[t][0], _mm256_maddubs_epi16(low, token));
      dots[t][1] = _mm256_add_epi16(dots[t][1], _mm256_maddubs_epi16(high, token));
    }
  }
  const __m256i ones = _mm256_set1_epi16(1);
  for (int t = 0; t < kTokens; ++t) {
    dots[t][0] = _mm256_madd_epi16(dots[t][0], ones);
    dots[t][1] = _mm256_madd_epi16(dots[t][1], ones);
  }
}

// Types whose weights are taken as int8.
template <typename Type>
struct SignedBlocks {
  using Activation = int16_t;                      // in the panel
  static constexpr uint32_t kPanelBytes = 2;       // per weight
  static constexpr uint32_t kPanelFromTokens = 6;  // fewer do not pay for the unpacking
  static constexpr bool kMinimums = false;

  static __m256i Dot(const uint8_t* block, const int8_t* a) {
    const __m256i w = Type::Integers(block);
    const __m256i products = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(LoadBytes(a), w));
    return _mm256_madd_epi16(products, _mm256_set1_epi16(1));
  }
  static __m256i Dot4(const uint8_t* row, const int8_t* a) {
    return SumEach4(Dot(row, a), Dot(row + Type::kBytes, a + 32), Dot(row + 2 * Type::kBytes, a + 64),
                    Dot(row + 3 * Type::kBytes, a + 96));
  }
  static __m256i Correct(__m256i dots, __m256i /*sums*/) { return dots; }

  // Block `b` of eight rows into eight rows' half of the panel: 16 steps of [row][two int16], 64 bytes apart.
  static void Unpack(const uint8_t* const* blocks, uint8_t* panel) {
    __m256i x[8];
    for (int i = 0; i < 8; ++i) x[i] = Type::Integers(blocks[i]);
    TransposePairs(x);
    for (int i = 0; i < 8; ++i) {
      StoreBytes(panel + i * 64, _mm256_cvtepi8_epi16(_mm256_castsi256_si128(x[i])));
      StoreBytes(panel + (i + 8) * 64, _mm256_cvtepi8_epi16(_mm256_extracti128_si256(x[i], 1)));
    }
  }

  template <int kTokens>
  static void PanelDots(const uint8_t* panel, const Activation* a, size_t a_stride, const int32_t* /*sum*/,
                        size_t /*sum_stride*/, __m256i (*dots)[2]) {
    PairDots<kTokens>(panel, a, a_stride, dots);
  }
};

struct Q8Blocks : SignedBlocks<Q8Blocks> {
  static constexpr int kBytes = 34;
  static __m256i Integers(const uint8_t* block) { return LoadBytes(block + 2); }
};

struct Q5Blocks : SignedBlocks<Q5Blocks> {
  static constexpr int kBytes = 22;
  static __m256i Integers(const uint8_t* block) { return _mm256_sub_epi8(FiveBits(block), _mm256_set1_epi8(16)); }
};

struct Q4Blocks {
  static constexpr bool kMinimums = false;
  static constexpr int kBytes = 18;
  using Activation = int8_t;
  static constexpr uint32_t kPanelBytes = 1;
  static constexpr uint32_t kPanelFromTokens = 4;

  static __m256i Integers(const uint8_t* block) { return _mm256_sub_epi8(Nibbles(block), _mm256_set1_epi8(8)); }

  // Pair sums of at most 15 * 127 * 2 = 3,810; eight of them fit 16 bits.
  static __m256i Pairs(const uint8_t* block, const int8_t* a) {
    return _mm256_maddubs_epi16(Nibbles(block), LoadBytes(a));
  }
  static __m256i Dot4(const uint8_t* row, const int8_t* a) {
    return SumEachShort4(Pairs(row, a), Pairs(row + kBytes, a + 32), Pairs(row + 2 * kBytes, a + 64),
                         Pairs(row + 3 * kBytes, a + 96));
  }
  static __m256i Correct(__m256i dots, __m256i sums) { return _mm256_sub_epi32(dots, _mm256_slli_epi32(sums, 3)); }

  static void Unpack(const uint8_t* const* blocks, uint8_t* panel) { UnpackNibbles(blocks, panel); }

  template <int kTokens>
  static void PanelDots(const uint8_t* panel, const Activation* a, size_t a_stride, const int32_t* sum,
                        size_t sum_stride, __m256i (*dots)[2]) {
    NibbleDots<kTokens>(panel, a, a_stride, dots);
    for (int t = 0; t < kTokens; ++t) {
      const __m256i eight_sums = _mm256_set1_epi32(sum[t * sum_stride] * 8);
      dots[t][0] = _mm256_sub_epi32(dots[t][0], eight_sums);
      dots[t][1] = _mm256_sub_epi32(dots[t][1], eight_sums);
    }
  }
};

struct Q4KBlocks : Q4KSuper {
  using Activation = int8_t;
  static constexpr uint32_t kPanelFromTokens = 4;

  template <int kTokens>
  static void PanelDots(const uint8_t* panel, const Activation* a, size_t a_stride, const int32_t* /*sum*/,
                        size_t /*sum_stride*/, __m256i (*dots)[2]) {
    NibbleDots<kTokens>(panel, a, a_stride, dots);
  }
};

struct Q6KBlocks : Q6KSuper {
  static constexpr uint32_t kPanelFromTokens = 6;

  template <int kTokens>
  static void PanelDots(const uint8_t* panel, const Activation* a, size_t a_stride, const int32_t* /*sum*/,
                        size_t /*sum_stride*/, __m256i (*dots)[2]) {
    PairDots<kTokens>(panel, a, a_stride, dots);
  }
};

template <typename Format, int kTokens>
inline void PanelTile(const Panel& panel, const Activations& x, uint32_t token, uint32_t rows, const uint8_t* next,
                      float* out, size_t out_stride) {
  constexpr size_t kBlock = size_t{32} * kPanelRows * Format::kPanelBytes;
  const uint32_t blocks = x.cols / 32;
  const auto* a = TileActivations(x, token, kTokens, panel, static_cast<const typename Format::Activation*>(nullptr));
  const float* scale = x.q8_scale + size_t{token} * blocks;
  const int32_t* sum = x.q8_sum + size_t{token} * blocks;
  __m256 chains[kBlockChains][kTokens][2];
  for (auto& chain : chains) {
    for (auto& pair : chain) pair[0] = pair[1] = _mm256_setzero_ps();
  }
  for (uint32_t b = 0; b < blocks; ++b) {
    if (token == 0) FetchNext<Format>(next, b);
    __m256i dots[kTokens][2];
    Format::template PanelDots<kTokens>(panel.weights + b * kBlock, a + size_t{b} * 32, x.cols, sum + b, blocks, dots);
    const __m256 low = _mm256_loadu_ps(panel.scales + b * kPanelRows);
    const __m256 high = _mm256_loadu_ps(panel.scales + b * kPanelRows + 8);
    auto& chain = chains[b % kBlockChains];
    for (int t = 0; t < kTokens; ++t) {
      const __m256 token_scale = _mm256_set1_ps(scale[size_t{static_cast<uint32_t>(t)} * blocks + b]);
      chain[t][0] = _mm256_fmadd_ps(_mm256_mul_ps(low, token_scale), _mm256_cvtepi32_ps(dots[t][0]), chain[t][0]);
      chain[t][1] = _mm256_fmadd_ps(_mm256_mul_ps(high, token_scale), _mm256_cvtepi32_ps(dots[t][1]), chain[t][1]);
      if constexpr (Format::kMinimums) {
        const float* minimums = panel.minimums + b * kPanelRows;
        const __m256 total = _mm256_set1_ps(static_cast<float>(sum[size_t{static_cast<uint32_t>(t)} * blocks + b]));
        for (int half = 0; half < 2; ++half) {
          const __m256 minimum = _mm256_mul_ps(_mm256_loadu_ps(minimums + half * 8), token_scale);
          chain[t][half] = _mm256_fmadd_ps(minimum, total, chain[t][half]);
        }
      }
    }
  }
  for (int t = 0; t < kTokens; ++t) {
    const auto whole = [&chains, t](int half) {
      return _mm256_add_ps(_mm256_add_ps(chains[0][t][half], chains[1][t][half]),
                           _mm256_add_ps(chains[2][t][half], chains[3][t][half]));
    };
    StoreRows(out + (token + t) * out_stride, whole(0), whole(1), rows);
  }
}

}  // namespace
}  // namespace bulkhead::kernels
