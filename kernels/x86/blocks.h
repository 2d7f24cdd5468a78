// Matrices of 32-blocks with one half-precision scale at the block's start, decode side: two rows and four blocks a
// step, so that a register holds both rows' four chains. A tier's *_blocks.h supplies the integer dots.
#pragma once

#include <immintrin.h>

#include "kernels/tiers.h"

namespace bulkhead::kernels {
namespace {

constexpr uint32_t kStepBlocks = 4;

inline __m256i LoadBytes(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline void StoreBytes(void* p, __m256i x) { _mm256_storeu_si256(static_cast<__m256i*>(p), x); }

// A Q4_0 block's 32 values, 0..15.
inline __m256i Nibbles(const uint8_t* block) {
  const __m256i twice = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 2)));
  const __m256i shifted = _mm256_srlv_epi32(twice, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4));
  return _mm256_and_si256(shifted, _mm256_set1_epi8(15));
}

// A Q5_0 block's 32 values, 0..31: byte i takes its fifth bit from bit i of the 32 behind the scale.
inline __m256i FiveBits(const uint8_t* block) {
  int32_t bits;
  __builtin_memcpy(&bits, block + 2, sizeof bits);
  const __m256i spread = _mm256_shuffle_epi8(
      _mm256_set1_epi32(bits), _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
  const __m256i mask = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
  const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, mask), mask);
  return _mm256_or_si256(Nibbles(block + 4), _mm256_and_si256(set, _mm256_set1_epi8(16)));
}

// Eight rows of 32 bytes into 8 steps of [row][four bytes].
inline void TransposeFours(__m256i* x) {
  __m256i y[8];
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
    y[i] = _mm256_permute2x128_si256(x[i], x[i + 4], 0x20);
    y[i + 4] = _mm256_permute2x128_si256(x[i], x[i + 4], 0x31);
  }
  for (int i = 0; i < 8; ++i) x[i] = y[i];
}

// Eight rows of 32 int8 into 16 steps of [row][two]: x[i] holds steps i and i + 8.
inline void TransposePairs(__m256i* x) {
  __m256i y[8];
  for (int i = 0; i < 4; ++i) {
    y[2 * i] = _mm256_unpacklo_epi16(x[2 * i], x[2 * i + 1]);
    y[2 * i + 1] = _mm256_unpackhi_epi16(x[2 * i], x[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    x[4 * i] = _mm256_unpacklo_epi32(y[4 * i], y[4 * i + 2]);
    x[4 * i + 1] = _mm256_unpackhi_epi32(y[4 * i], y[4 * i + 2]);
    x[4 * i + 2] = _mm256_unpacklo_epi32(y[4 * i + 1], y[4 * i + 3]);
    x[4 * i + 3] = _mm256_unpackhi_epi32(y[4 * i + 1], y[4 * i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    y[2 * i] = _mm256_unpacklo_epi64(x[i], x[i + 4]);
    y[2 * i + 1] = _mm256_unpackhi_epi64(x[i], x[i + 4]);
  }
  for (int i = 0; i < 8; ++i) x[i] = y[i];
}

// A Q4_0 block of each of eight rows: 8 steps of [row][four bytes], 64 bytes apart.
inline void UnpackNibbles(const uint8_t* const* blocks, uint8_t* panel) {
  const auto half = [](const uint8_t* block) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 2)); };
  __m256i x[4];
  for (int i = 0; i < 4; ++i) x[i] = _mm256_set_m128i(half(blocks[i + 4]), half(blocks[i]));
  const __m256i ab_low = _mm256_unpacklo_epi32(x[0], x[1]);
  const __m256i ab_high = _mm256_unpackhi_epi32(x[0], x[1]);
  const __m256i cd_low = _mm256_unpacklo_epi32(x[2], x[3]);
  const __m256i cd_high = _mm256_unpackhi_epi32(x[2], x[3]);
  const __m256i steps[4] = {_mm256_unpacklo_epi64(ab_low, cd_low), _mm256_unpackhi_epi64(ab_low, cd_low),
                            _mm256_unpacklo_epi64(ab_high, cd_high), _mm256_unpackhi_epi64(ab_high, cd_high)};
  const __m256i mask = _mm256_set1_epi8(15);
  for (int i = 0; i < 4; ++i) {
    StoreBytes(panel + i * 64, _mm256_and_si256(steps[i], mask));
    StoreBytes(panel + (i + 4) * 64, _mm256_and_si256(_mm256_srli_epi16(steps[i], 4), mask));
  }
}

// The scales of four blocks at p and of four at q, later in the same buffer. Loads begin before a block so that its
// scale falls on its place in the register; none begins before p or ends after the last block.
template <int kBytes>
inline __m256 LoadScales(const uint8_t* p, const uint8_t* q) {
  const auto at = [](const uint8_t* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); };
  __m128i halves = at(p);
  halves = _mm_blend_epi16(halves, at(p + kBytes - 2), 0x02);
  halves = _mm_blend_epi16(halves, at(p + 2 * kBytes - 4), 0x04);
  halves = _mm_blend_epi16(halves, at(p + 3 * kBytes - 6), 0x08);
  halves = _mm_blend_epi16(halves, at(q - 8), 0x10);
  halves = _mm_blend_epi16(halves, at(q + kBytes - 10), 0x20);
  halves = _mm_blend_epi16(halves, at(q + 2 * kBytes - 12), 0x40);
  halves = _mm_blend_epi16(halves, at(q + 3 * kBytes - 14), 0x80);
  return _mm256_cvtph_ps(halves);
}

// [a0 a1 a2 a3 | a0 ...] + [b0 b1 b2 b3 | b0 ...], halves added: [a0 a1 a2 a3 | b0 b1 b2 b3].
inline __m256i JoinRows(__m256i a, __m256i b) {
  return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}

// Each of four registers of eight int32 summed: [a b c d | a b c d], the two halves still to be added.
inline __m256i SumEach4(__m256i a, __m256i b, __m256i c, __m256i d) {
  const __m256i ab = _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
  const __m256i cd = _mm256_add_epi32(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
  return _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
}

// The same for sixteen int16 each, whose sums of eight fit 16 bits.
inline __m256i SumEachShort4(__m256i a, __m256i b, __m256i c, __m256i d) {
  const __m256i ab = _mm256_add_epi16(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
  const __m256i cd = _mm256_add_epi16(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
  const __m256i all = _mm256_add_epi16(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
  return _mm256_madd_epi16(all, _mm256_set1_epi16(1));
}

// Four blocks of two rows with one token.
template <typename Format>
inline __m256 StepBlocks(const uint8_t* p, const uint8_t* q, __m256 weight_scales, const int8_t* a, const float* scale,
                         const int32_t* sum, __m256 chains) {
  const __m256i dots =
      Format::Correct(JoinRows(Format::Dot4(p, a), Format::Dot4(q, a)),
                      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(sum))));
  const __m256 scales = _mm256_mul_ps(weight_scales, _mm256_broadcast_ps(reinterpret_cast<const __m128*>(scale)));
  return _mm256_fmadd_ps(scales, _mm256_cvtepi32_ps(dots), chains);
}

inline void CopyBytes(void* to, const void* from, size_t count) {
  for (size_t i = 0; i < count; ++i) static_cast<uint8_t*>(to)[i] = static_cast<const uint8_t*>(from)[i];
}

// Fewer than four blocks, or one row alone: the rest is zeros, which change no chain.
template <typename Format>
inline __m256 StepSome(const uint8_t* p, const uint8_t* q, uint32_t blocks, const int8_t* a, const float* scale,
                       const int32_t* sum, __m256 chains) {
  uint8_t rows[2][kStepBlocks * Format::kBytes] = {};
  int8_t tokens[kStepBlocks * 32] = {};
  float scales[kStepBlocks] = {};
  int32_t sums[kStepBlocks] = {};
  CopyBytes(rows[0], p, blocks * Format::kBytes);
  if (q != nullptr) CopyBytes(rows[1], q, blocks * Format::kBytes);
  CopyBytes(tokens, a, blocks * 32);
  CopyBytes(scales, scale, blocks * sizeof(float));
  CopyBytes(sums, sum, blocks * sizeof(int32_t));
  return StepBlocks<Format>(rows[0], rows[1], LoadScales<Format::kBytes>(rows[0], rows[1]), tokens, scales, sums,
                            chains);
}

// (c0 + c1) + (c2 + c3) of both rows.
inline void StoreChains(__m256 chains, bool both, float* out) {
  const __m256 pairs = _mm256_add_ps(chains, _mm256_movehdup_ps(chains));
  const __m256 whole = _mm256_add_ps(pairs, _mm256_permute_ps(pairs, 0x02));
  out[0] = _mm_cvtss_f32(_mm256_castps256_ps128(whole));
  if (both) out[1] = _mm_cvtss_f32(_mm256_extractf128_ps(whole, 1));
}

// Both rows are read at once, but memory is fetched in one ascending stream: that alone reaches the machine's read rate
// (two streams reached two thirds of it). The stream must be past the second row's start when the pair begins.
constexpr size_t kPrefetchBytes = 2048;

// Two rows with kTokens tokens from `token` on.
template <typename Format, int kTokens>
inline void DirectPair(const uint8_t* p, const uint8_t* q, const Activations& x, uint32_t token, float* out,
                       size_t out_stride) {
  const uint32_t blocks = x.cols / 32;
  const int8_t* a = x.q8 + size_t{token} * x.cols;
  const float* scale = x.q8_scale + size_t{token} * blocks;
  const int32_t* sum = x.q8_sum + size_t{token} * blocks;
  __m256 chains[kTokens];
  for (int t = 0; t < kTokens; ++t) chains[t] = _mm256_setzero_ps();
  const uint8_t* ahead = q + kPrefetchBytes;
  uint32_t b = 0;
  for (; b + kStepBlocks <= blocks; b += kStepBlocks) {
    const uint8_t* step_p = p + size_t{b} * Format::kBytes;
    const uint8_t* step_q = q + size_t{b} * Format::kBytes;
    for (uint32_t line = 0; line < 2 * kStepBlocks * Format::kBytes; line += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(ahead + size_t{b} * 2 * Format::kBytes + line), _MM_HINT_T0);
    }
    const __m256 weight_scales = LoadScales<Format::kBytes>(step_p, step_q);
    for (int t = 0; t < kTokens; ++t) {
      const size_t at = size_t{static_cast<uint32_t>(t)} * blocks + b;
      chains[t] = StepBlocks<Format>(step_p, step_q, weight_scales, a + at * 32, scale + at, sum + at, chains[t]);
    }
  }
  for (int t = 0; t < kTokens; ++t) {
    const size_t at = size_t{static_cast<uint32_t>(t)} * blocks + b;
    if (b < blocks) {
      chains[t] = StepSome<Format>(p + size_t{b} * Format::kBytes, q + size_t{b} * Format::kBytes, blocks - b,
                                   a + at * 32, scale + at, sum + at, chains[t]);
    }
    StoreChains(chains[t], true, out + (token + t) * out_stride);
  }
}

// The last row where their number is odd.
template <typename Format>
inline void DirectSingle(const uint8_t* p, const Activations& x, uint32_t token, float* out, size_t out_stride) {
  const uint32_t blocks = x.cols / 32;
  __m256 chains = _mm256_setzero_ps();
  for (uint32_t b = 0; b < blocks; b += kStepBlocks) {
    const uint32_t count = blocks - b < kStepBlocks ? blocks - b : kStepBlocks;
    const size_t at = size_t{token} * blocks + b;
    chains = StepSome<Format>(p + size_t{b} * Format::kBytes, nullptr, count, x.q8 + at * 32, x.q8_scale + at,
                              x.q8_sum + at, chains);
  }
  StoreChains(chains, false, out + token * out_stride);
}

// Rows [row_begin, row_end), all tokens, straight from the file.
template <typename Format>
inline void DirectMatMul(const MatMulTask& task, uint32_t row_begin, uint32_t row_end) {
  const size_t row_bytes = task.weights.row_bytes;
  const uint8_t* data = static_cast<const uint8_t*>(task.weights.data);
  uint32_t r = row_begin;
  for (; r + 2 <= row_end; r += 2) {
    const uint8_t* p = data + r * row_bytes;
    uint32_t t = 0;
    for (; t + 3 <= task.x.tokens; t += 3) {
      DirectPair<Format, 3>(p, p + row_bytes, task.x, t, task.out + r, task.out_stride);
    }
    if (t + 2 == task.x.tokens) {
      DirectPair<Format, 2>(p, p + row_bytes, task.x, t, task.out + r, task.out_stride);
    } else if (t < task.x.tokens) {
      DirectPair<Format, 1>(p, p + row_bytes, task.x, t, task.out + r, task.out_stride);
    }
  }
  for (uint32_t t = 0; r < row_end && t < task.x.tokens; ++t) {
    DirectSingle<Format>(data + r * row_bytes, task.x, t, task.out + r, task.out_stride);
  }
}

// One row of a block type into floats.
template <typename Format>
inline void DequantiseBlocks(const uint8_t* row, uint32_t cols, float* out) {
  for (uint32_t b = 0; b < cols / 32; ++b) {
    const uint8_t* block = row + size_t{b} * Format::kBytes;
    uint16_t half;
    CopyBytes(&half, block, sizeof half);
    const __m256 scale = _mm256_set1_ps(_cvtsh_ss(half));
    int8_t q[32];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), Format::Integers(block));
    for (int i = 0; i < 32; i += 8) {
      const __m256i wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(q + i)));
      _mm256_storeu_ps(out + size_t{b} * 32 + i, _mm256_mul_ps(scale, _mm256_cvtepi32_ps(wide)));
    }
  }
}

// Activations into int8 groups of 32 (docs/numerics.md).
inline void QuantiseGroup(const float* x, int8_t* q8, float* scale, int32_t* sum) {
  __m256 values[4];
  __m256i max = _mm256_setzero_si256();
  for (int i = 0; i < 4; ++i) {
    values[i] = _mm256_loadu_ps(x + i * 8);
    max = _mm256_max_epi32(max, _mm256_and_si256(_mm256_castps_si256(values[i]), _mm256_set1_epi32(0x7fffffff)));
  }
  __m128i four = _mm_max_epi32(_mm256_castsi256_si128(max), _mm256_extracti128_si256(max, 1));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1));
  const uint32_t max_bits = static_cast<uint32_t>(_mm_cvtsi128_si32(four));
  const float largest = _mm_cvtss_f32(_mm_castsi128_ps(four));
  if (max_bits >= 0x7f800000 || largest < kSmallestGroupMax) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q8), _mm256_setzero_si256());
    *scale = max_bits >= 0x7f800000 ? __builtin_nanf("") : 0.0f;
    *sum = 0;
    return;
  }
  *scale = largest / 127.0f;
  const __m256 divisor = _mm256_set1_ps(*scale);
  __m256i q[4];
  for (int i = 0; i < 4; ++i) q[i] = _mm256_cvtps_epi32(_mm256_div_ps(values[i], divisor));
  const __m256i total = _mm256_add_epi32(_mm256_add_epi32(q[0], q[1]), _mm256_add_epi32(q[2], q[3]));
  __m128i part = _mm_add_epi32(_mm256_castsi256_si128(total), _mm256_extracti128_si256(total, 1));
  part = _mm_add_epi32(part, _mm_shuffle_epi32(part, 0x4e));
  part = _mm_add_epi32(part, _mm_shuffle_epi32(part, 0xb1));
  *sum = _mm_cvtsi128_si32(part);
  // Packing works within halves of a register; the permutation puts the eight groups of four back in order.
  const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q8), _mm256_permutevar8x32_epi32(packed, order));
}

inline void QuantiseQ8(const float* x, uint32_t cols, int8_t* q8, float* scale, int32_t* sum) {
  for (uint32_t g = 0; g < cols / kActivationGroup; ++g) {
    QuantiseGroup(x + size_t{g} * 32, q8 + size_t{g} * 32, scale + g, sum + g);
  }
}

}  // namespace
}  // namespace bulkhead::kernels
