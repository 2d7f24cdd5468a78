// Sixteen float lanes in two AVX2 registers: the vocabulary in which the operations shared by the x86 tiers are
// written (vector_math.h, attention.h, float_matmul.h). Included by avx2.cc only.
#pragma once

#include <immintrin.h>

#include "kernels/tiers.h"

namespace bulkhead::kernels {
namespace {

struct Lanes {
  __m256 low;
  __m256 high;
};

// The tile of FloatTile that fills this tier's registers.
constexpr int kFloatTileRows = 2;
constexpr int kFloatTileTokens = 3;

constexpr int kTierTokens = 4;  // tokens that a panel is multiplied with at once

inline Lanes Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Lanes Broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Lanes Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void Store(float* p, Lanes x) {
  _mm256_storeu_ps(p, x.low);
  _mm256_storeu_ps(p + 8, x.high);
}

inline Lanes LoadHalf(const void* p) {
  const auto* halves = static_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
}
inline void StoreHalf(void* p, Lanes x) {
  auto* halves = static_cast<__m128i*>(p);
  _mm_storeu_si128(halves, _mm256_cvtps_ph(x.low, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(halves + 1, _mm256_cvtps_ph(x.high, _MM_FROUND_TO_NEAREST_INT));
}
inline __m256 Bf16ToFloat(__m128i x) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16)); }
inline Lanes LoadBf16(const void* p) {
  const auto* halves = static_cast<const __m128i*>(p);
  return {Bf16ToFloat(_mm_loadu_si128(halves)), Bf16ToFloat(_mm_loadu_si128(halves + 1))};
}

inline Lanes Add(Lanes a, Lanes b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
inline Lanes Sub(Lanes a, Lanes b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
inline Lanes Mul(Lanes a, Lanes b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
inline Lanes Div(Lanes a, Lanes b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
inline Lanes Max(Lanes a, Lanes b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
inline Lanes Fma(Lanes a, Lanes b, Lanes c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}

inline __m128 Sum2(__m128 x) { return _mm_add_ss(x, _mm_movehdup_ps(x)); }
// The canonical tree: +8, +4, +2, +1.
inline float Sum(Lanes x) {
  const __m256 eight = _mm256_add_ps(x.low, x.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  return _mm_cvtss_f32(Sum2(_mm_add_ps(four, _mm_movehl_ps(four, four))));
}

// out[i] = Sum(x[i]), the four trees side by side.
inline void Sum4(const Lanes* x, float* out) {
  const __m256 a = _mm256_add_ps(x[0].low, x[0].high);
  const __m256 b = _mm256_add_ps(x[1].low, x[1].high);
  const __m256 c = _mm256_add_ps(x[2].low, x[2].high);
  const __m256 d = _mm256_add_ps(x[3].low, x[3].high);
  const __m256 ab = _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
  const __m256 cd = _mm256_add_ps(_mm256_permute2f128_ps(c, d, 0x20), _mm256_permute2f128_ps(c, d, 0x31));
  const __m256 two = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));  // ac | bd
  const __m256 one = _mm256_add_ps(two, _mm256_movehdup_ps(two));
  const __m128 ac = _mm256_castps256_ps128(one);
  const __m128 bd = _mm256_extractf128_ps(one, 1);
  _mm_storeu_ps(out, _mm_unpacklo_ps(_mm_shuffle_ps(ac, ac, 0x08), _mm_shuffle_ps(bd, bd, 0x08)));
}

inline float MaxLane(Lanes x) {
  const __m256 eight = _mm256_max_ps(x.low, x.high);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

inline __m256 Exp8(__m256 x) {
  const __m256 magic = _mm256_set1_ps(kRoundMagic);
  const __m256 shifted = _mm256_fmadd_ps(x, _mm256_set1_ps(kLog2E), magic);
  const __m256 n = _mm256_sub_ps(shifted, magic);
  const __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-kLn2Low), _mm256_fmadd_ps(n, _mm256_set1_ps(-kLn2High), x));
  __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(kExp6), r, _mm256_set1_ps(kExp5));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExp4));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExp3));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExp2));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
  const __m256i exponent = _mm256_add_epi32(_mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_castps_si256(magic)),
                                            _mm256_set1_epi32(126));
  const __m256 power = _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
  __m256 result = _mm256_mul_ps(_mm256_mul_ps(p, _mm256_set1_ps(2.0f)), power);
  const __m256 too_high = _mm256_cmp_ps(x, _mm256_set1_ps(kExpHighest), _CMP_GT_OQ);
  const __m256 too_low = _mm256_cmp_ps(x, _mm256_set1_ps(kExpLowest), _CMP_LT_OQ);
  result = _mm256_blendv_ps(result, _mm256_set1_ps(__builtin_inff()), too_high);
  return _mm256_andnot_ps(too_low, result);
}
inline Lanes Exp(Lanes x) { return {Exp8(x.low), Exp8(x.high)}; }

}  // namespace
}  // namespace bulkhead::kernels
