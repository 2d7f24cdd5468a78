// The K types in 256-bit registers, for both x86 tiers: super-blocks of 256 weights, whose 32-blocks have scales of
// their own (docs/numerics.md). Decode reads two rows and four blocks a step; prefill unpacks a panel (panel.h), which
// each tier multiplies in its own way.
#pragma once

#include "kernels/x86/panel.h"

namespace bulkhead::kernels {
namespace {

inline float HalfAsFloat(const uint8_t* p) { return _cvtsh_ss(static_cast<uint16_t>(HalfAt(p))); }

// Row r's eight values into column r of eight panel rows.
inline void StoreColumn(__m256 values, float* column) {
  float each[kSuperBlocks];
  _mm256_storeu_ps(each, values);
  for (uint32_t b = 0; b < kSuperBlocks; ++b) column[b * kPanelRows] = each[b];
}

// Q4_K: two halves (scale, minimum), 12 bytes of 6-bit factors, 128 bytes of nibbles, 32 bytes for two blocks.
struct Q4KSuper {
  static constexpr int kSuperBytes = 144;
  static constexpr int kBytes = 18;  // of a block, for fetching ahead
  static constexpr uint32_t kPanelBytes = 1;
  static constexpr bool kMinimums = true;

  struct Factors {
    __m256 scales;    // of the eight blocks
    __m256 minimums;  // likewise, their signs turned
  };

  static Factors FactorsOf(const uint8_t* super) {
    uint32_t packed[3];
    __builtin_memcpy(packed, super + 4, sizeof packed);
    const uint32_t high_scales = (packed[2] & 0x0f0f0f0f) | (packed[0] >> 2 & 0x30303030);
    const uint32_t high_minimums = (packed[2] >> 4 & 0x0f0f0f0f) | (packed[1] >> 2 & 0x30303030);
    const auto floats = [](uint32_t low, uint32_t high) {
      const __m128i bytes = _mm_cvtsi64_si128(static_cast<int64_t>(low | static_cast<uint64_t>(high) << 32));
      return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
    };
    return {_mm256_mul_ps(_mm256_set1_ps(HalfAsFloat(super)), floats(packed[0] & 0x3f3f3f3f, high_scales)),
            _mm256_mul_ps(_mm256_set1_ps(-HalfAsFloat(super + 2)), floats(packed[1] & 0x3f3f3f3f, high_minimums))};
  }

  // The dots of blocks 4 * step and on, as SumEach4 leaves them.
  static __m256i Dot4(const uint8_t* super, uint32_t step, const int8_t* a) {
    const __m256i mask = _mm256_set1_epi8(15);
    const __m256i x = LoadBytes(super + 16 + step * 64);
    const __m256i y = LoadBytes(super + 48 + step * 64);
    const auto high = [mask](__m256i bytes) { return _mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask); };
    return SumEachShort4(_mm256_maddubs_epi16(_mm256_and_si256(x, mask), LoadBytes(a)),
                         _mm256_maddubs_epi16(high(x), LoadBytes(a + 32)),
                         _mm256_maddubs_epi16(_mm256_and_si256(y, mask), LoadBytes(a + 64)),
                         _mm256_maddubs_epi16(high(y), LoadBytes(a + 96)));
  }

  static void UnpackSuper(const uint8_t* const* at, uint32_t super, uint32_t half, const Panel& panel) {
    constexpr size_t kBlock = size_t{32} * kPanelRows;
    const size_t first = size_t{super} * kSuperBlocks;
    for (uint32_t i = 0; i < 8; ++i) {
      const Factors factors = FactorsOf(at[i]);
      StoreColumn(factors.scales, panel.scales + first * kPanelRows + half * 8 + i);
      StoreColumn(factors.minimums, panel.minimums + first * kPanelRows + half * 8 + i);
    }
    const __m256i mask = _mm256_set1_epi8(15);
    for (uint32_t pair = 0; pair < kSuperBlocks / 2; ++pair) {
      __m256i x[8];
      for (int i = 0; i < 8; ++i) x[i] = LoadBytes(at[i] + 16 + pair * 32);
      TransposeFours(x);
      uint8_t* to = panel.weights + (first + pair * 2) * kBlock + half * 32;
      for (int step = 0; step < 8; ++step) {
        StoreBytes(to + step * 64, _mm256_and_si256(x[step], mask));
        StoreBytes(to + kBlock + step * 64, _mm256_and_si256(_mm256_srli_epi16(x[step], 4), mask));
      }
    }
  }

  static void DequantiseBlock(const uint8_t* super, uint32_t b, float* out) {
    float scales[kSuperBlocks];
    float minimums[kSuperBlocks];
    const Factors factors = FactorsOf(super);
    _mm256_storeu_ps(scales, factors.scales);
    _mm256_storeu_ps(minimums, factors.minimums);
    for (uint32_t i = 0; i < 32; ++i) {
      const int32_t q = super[16 + b / 2 * 32 + i] >> b % 2 * 4 & 15;
      out[i] = scales[b] * static_cast<float>(q) + minimums[b];
    }
  }
};

// Q6_K: 128 bytes of low nibbles, 64 of high bit pairs, 16 signed scales, a half. A block's two scales of 16 weights
// each are part of its integers: 32 * 127 * 128 * 32 stays below 2^24, so the sum is exact as a float too.
struct Q6KSuper {
  using Activation = int16_t;  // in the panel
  static constexpr int kSuperBytes = 210;
  static constexpr int kBytes = 26;
  static constexpr uint32_t kPanelBytes = 2;
  static constexpr bool kMinimums = false;

  struct Factors {
    __m256 scales;
  };
  static Factors FactorsOf(const uint8_t* super) { return {_mm256_set1_ps(HalfAsFloat(super + 208))}; }

  // Block kBlock % 4 of the half whose low nibbles and high pairs are given: -32..31.
  template <int kBlock>
  static __m256i Integers(const uint8_t* low, const uint8_t* high) {
    const __m256i nibbles = LoadBytes(low + kBlock % 2 * 32);
    const __m256i pairs = LoadBytes(high);
    const __m256i lower = _mm256_and_si256(_mm256_srli_epi16(nibbles, kBlock / 2 * 4), _mm256_set1_epi8(15));
    const __m256i two = _mm256_and_si256(_mm256_srli_epi16(pairs, kBlock * 2), _mm256_set1_epi8(3));
    return _mm256_sub_epi8(_mm256_or_si256(lower, _mm256_slli_epi16(two, 4)), _mm256_set1_epi8(32));
  }

  // scales[0] sixteen times a byte pair of the first 16 weights, scales[1] of the others.
  static __m256i BothScales(const int8_t* scales) {
    return _mm256_set_m128i(_mm_set1_epi16(scales[1]), _mm_set1_epi16(scales[0]));
  }

  template <int kBlock>
  static __m256i Dot(const uint8_t* super, uint32_t step, const int8_t* a) {
    const __m256i w = Integers<kBlock>(super + step * 64, super + 128 + step * 32);
    const __m256i products = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(LoadBytes(a + kBlock * 32), w));
    const auto* scales = reinterpret_cast<const int8_t*>(super + 192) + step * 8 + kBlock * 2;
    return _mm256_madd_epi16(products, BothScales(scales));
  }
  static __m256i Dot4(const uint8_t* super, uint32_t step, const int8_t* a) {
    return SumEach4(Dot<0>(super, step, a), Dot<1>(super, step, a), Dot<2>(super, step, a), Dot<3>(super, step, a));
  }

  template <int kBlock>
  static void UnpackOne(const uint8_t* const* at, uint32_t step, uint8_t* panel) {
    __m256i x[8];
    int16_t scales[2][16];
    for (int i = 0; i < 8; ++i) {
      x[i] = Integers<kBlock>(at[i] + step * 64, at[i] + 128 + step * 32);
      const auto* both = reinterpret_cast<const int8_t*>(at[i] + 192) + step * 8 + kBlock * 2;
      for (int which = 0; which < 2; ++which) scales[which][2 * i] = scales[which][2 * i + 1] = both[which];
    }
    TransposePairs(x);
    const __m256i first = LoadBytes(scales[0]);
    const __m256i second = LoadBytes(scales[1]);
    for (int i = 0; i < 8; ++i) {
      const __m256i low = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(x[i]));
      const __m256i high = _mm256_cvtepi8_epi16(_mm256_extracti128_si256(x[i], 1));
      StoreBytes(panel + i * 64, _mm256_mullo_epi16(low, first));
      StoreBytes(panel + (i + 8) * 64, _mm256_mullo_epi16(high, second));
    }
  }

  static void UnpackSuper(const uint8_t* const* at, uint32_t super, uint32_t half, const Panel& panel) {
    constexpr size_t kBlock = size_t{32} * kPanelRows * kPanelBytes;
    const size_t first = size_t{super} * kSuperBlocks;
    for (uint32_t i = 0; i < 8; ++i) {
      StoreColumn(FactorsOf(at[i]).scales, panel.scales + first * kPanelRows + half * 8 + i);
    }
    for (uint32_t step = 0; step < 2; ++step) {
      uint8_t* to = panel.weights + (first + step * 4) * kBlock + half * 32;
      UnpackOne<0>(at, step, to);
      UnpackOne<1>(at, step, to + kBlock);
      UnpackOne<2>(at, step, to + 2 * kBlock);
      UnpackOne<3>(at, step, to + 3 * kBlock);
    }
  }

  static void DequantiseBlock(const uint8_t* super, uint32_t b, float* out) {
    const float scale = HalfAsFloat(super + 208);
    const uint8_t* low = super + b / 4 * 64 + b % 2 * 32;
    const uint8_t* high = super + 128 + b / 4 * 32;
    for (uint32_t i = 0; i < 32; ++i) {
      const int32_t q = (low[i] >> b % 4 / 2 * 4 & 15) | (high[i] >> b % 4 * 2 & 3) << 4;
      out[i] = scale * static_cast<float>((q - 32) * static_cast<int8_t>(super[192 + b * 2 + i / 16]));
    }
  }
};

// [p's half `step` | q's half `step`]
inline __m256 JoinHalves(__m256 p, __m256 q, uint32_t step) {
  return step == 0 ? _mm256_permute2f128_ps(p, q, 0x20) : _mm256_permute2f128_ps(p, q, 0x31);
}

// Four blocks of two rows with one token: as StepBlocks, and the minimums.
template <typename Format>
inline __m256 SuperStep(const uint8_t* p, const uint8_t* q, uint32_t step, const typename Format::Factors& of_p,
                        const typename Format::Factors& of_q, const int8_t* a, const float* scale, const int32_t* sum,
                        __m256 chains) {
  const __m256 token_scales = _mm256_broadcast_ps(reinterpret_cast<const __m128*>(scale));
  const __m256i dots = JoinRows(Format::Dot4(p, step, a), Format::Dot4(q, step, a));
  const __m256 scales = _mm256_mul_ps(JoinHalves(of_p.scales, of_q.scales, step), token_scales);
  chains = _mm256_fmadd_ps(scales, _mm256_cvtepi32_ps(dots), chains);
  if constexpr (Format::kMinimums) {
    const __m256i sums = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(sum)));
    const __m256 minimums = _mm256_mul_ps(JoinHalves(of_p.minimums, of_q.minimums, step), token_scales);
    chains = _mm256_fmadd_ps(minimums, _mm256_cvtepi32_ps(sums), chains);
  }
  return chains;
}

// Two rows (or one given twice) with kTokens tokens from `token` on.
template <typename Format, int kTokens>
inline void SuperPair(const uint8_t* p, const uint8_t* q, const Activations& x, uint32_t token, float* out,
                      size_t out_stride) {
  const uint32_t blocks = x.cols / 32;
  __m256 chains[kTokens];
  for (int t = 0; t < kTokens; ++t) chains[t] = _mm256_setzero_ps();
  const uint8_t* ahead = q + kPrefetchBytes;
  for (uint32_t super = 0; super < blocks / kSuperBlocks; ++super) {
    const uint8_t* of_p = p + size_t{super} * Format::kSuperBytes;
    const uint8_t* of_q = q + size_t{super} * Format::kSuperBytes;
    for (uint32_t line = 0; line < 2 * Format::kSuperBytes; line += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(ahead + size_t{super} * 2 * Format::kSuperBytes + line), _MM_HINT_T0);
    }
    const auto factors_p = Format::FactorsOf(of_p);
    const auto factors_q = Format::FactorsOf(of_q);
    for (uint32_t step = 0; step < 2; ++step) {
      for (int t = 0; t < kTokens; ++t) {
        const size_t at = (size_t{token} + static_cast<uint32_t>(t)) * blocks + super * kSuperBlocks + step * 4;
        chains[t] = SuperStep<Format>(of_p, of_q, step, factors_p, factors_q, x.q8 + at * 32, x.q8_scale + at,
                                      x.q8_sum + at, chains[t]);
      }
    }
  }
  for (int t = 0; t < kTokens; ++t) StoreChains(chains[t], p != q, out + (token + t) * out_stride);
}

template <typename Format>
inline void SuperRows(const uint8_t* p, const uint8_t* q, const Activations& x, float* out, size_t out_stride) {
  uint32_t t = 0;
  for (; t + 2 <= x.tokens; t += 2) SuperPair<Format, 2>(p, q, x, t, out, out_stride);
  if (t < x.tokens) SuperPair<Format, 1>(p, q, x, t, out, out_stride);
}

template <typename Format>
inline void SuperMatMul(const MatMulTask& task, uint32_t row_begin, uint32_t row_end, void* scratch,
                        size_t scratch_bytes) {
  if (task.x.tokens >= Format::kPanelFromTokens && scratch_bytes >= MatMulScratchBytes(task.x.cols)) {
    PanelMatMul<Format>(task, row_begin, row_end, scratch);
    return;
  }
  const size_t row_bytes = task.weights.row_bytes;
  const uint8_t* data = static_cast<const uint8_t*>(task.weights.data);
  for (uint32_t r = row_begin; r < row_end; r += 2) {
    const uint8_t* p = data + r * row_bytes;
    SuperRows<Format>(p, r + 1 < row_end ? p + row_bytes : p, task.x, task.out + r, task.out_stride);
  }
}

template <typename Format>
inline void DequantiseSuper(const uint8_t* row, uint32_t cols, float* out) {
  for (uint32_t b = 0; b < cols / 32; ++b) {
    Format::DequantiseBlock(row + size_t{b} / kSuperBlocks * Format::kSuperBytes, b % kSuperBlocks,
                            out + size_t{b} * 32);
  }
}

}  // namespace
}  // namespace bulkhead::kernels
