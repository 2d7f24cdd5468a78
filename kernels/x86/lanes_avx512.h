// Sixteen float lanes in one AVX-512 register: see lanes_avx2.h. Included by avx512.cc only. The tests compile the tier
// a second time with these intrinsics emulated (tests/kernels/avx512_portable.cc), so a new one needs an alias there.
#pragma once

#include <immintrin.h>

#include "kernels/tiers.h"

namespace bulkhead::kernels {
namespace {

using Lanes = __m512;

// The tile of FloatTile that fills this tier's registers.
constexpr int kFloatTileRows = 4;
constexpr int kFloatTileTokens = 4;

constexpr int kTierTokens = 8;  // tokens that a panel is multiplied with at once

inline Lanes Zero() { return _mm512_setzero_ps(); }
inline Lanes Broadcast(float x) { return _mm512_set1_ps(x); }
inline Lanes Load(const float* p) { return _mm512_loadu_ps(p); }
inline void Store(float* p, Lanes x) { _mm512_storeu_ps(p, x); }

inline Lanes LoadHalf(const void* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p))); }
inline void StoreHalf(void* p, Lanes x) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
inline Lanes LoadBf16(const void* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

inline Lanes Add(Lanes a, Lanes b) { return _mm512_add_ps(a, b); }
inline Lanes Sub(Lanes a, Lanes b) { return _mm512_sub_ps(a, b); }
inline Lanes Mul(Lanes a, Lanes b) { return _mm512_mul_ps(a, b); }
inline Lanes Div(Lanes a, Lanes b) { return _mm512_div_ps(a, b); }
inline Lanes Max(Lanes a, Lanes b) { return _mm512_max_ps(a, b); }
inline Lanes Fma(Lanes a, Lanes b, Lanes c) { return _mm512_fmadd_ps(a, b, c); }

inline __m256 HighHalf(Lanes x) { return _mm512_extractf32x8_ps(x, 1); }
inline __m256 FoldToEight(Lanes x) { return _mm256_add_ps(_mm512_castps512_ps256(x), HighHalf(x)); }

// The canonical tree: +8, +4, +2, +1.
inline float Sum(Lanes x) {
  const __m256 eight = FoldToEight(x);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// out[i] = Sum(x[i]), the four trees side by side.
inline void Sum4(const Lanes* x, float* out) {
  const __m256 a = FoldToEight(x[0]);
  const __m256 b = FoldToEight(x[1]);
  const __m256 c = FoldToEight(x[2]);
  const __m256 d = FoldToEight(x[3]);
  const __m256 ab = _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
  const __m256 cd = _mm256_add_ps(_mm256_permute2f128_ps(c, d, 0x20), _mm256_permute2f128_ps(c, d, 0x31));
  const __m256 two = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));  // ac | bd
  const __m256 one = _mm256_add_ps(two, _mm256_movehdup_ps(two));
  const __m128 ac = _mm256_castps256_ps128(one);
  const __m128 bd = _mm256_extractf128_ps(one, 1);
  _mm_storeu_ps(out, _mm_unpacklo_ps(_mm_shuffle_ps(ac, ac, 0x08), _mm_shuffle_ps(bd, bd, 0x08)));
}

inline float MaxLane(Lanes x) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(x), HighHalf(x));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

inline Lanes Exp(Lanes x) {
  const Lanes magic = Broadcast(kRoundMagic);
  const Lanes shifted = Fma(x, Broadcast(kLog2E), magic);
  const Lanes n = Sub(shifted, magic);
  const Lanes r = Fma(n, Broadcast(-kLn2Low), Fma(n, Broadcast(-kLn2High), x));
  Lanes p = Fma(Broadcast(kExp6), r, Broadcast(kExp5));
  p = Fma(p, r, Broadcast(kExp4));
  p = Fma(p, r, Broadcast(kExp3));
  p = Fma(p, r, Broadcast(kExp2));
  p = Fma(p, r, Broadcast(1.0f));
  p = Fma(p, r, Broadcast(1.0f));
  const __m512i exponent = _mm512_add_epi32(_mm512_sub_epi32(_mm512_castps_si512(shifted), _mm512_castps_si512(magic)),
                                            _mm512_set1_epi32(126));
  const Lanes power = _mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23));
  const Lanes result = Mul(Mul(p, Broadcast(2.0f)), power);
  const __mmask16 too_high = _mm512_cmp_ps_mask(x, Broadcast(kExpHighest), _CMP_GT_OQ);
  const __mmask16 too_low = _mm512_cmp_ps_mask(x, Broadcast(kExpLowest), _CMP_LT_OQ);
  return _mm512_mask_mov_ps(_mm512_mask_mov_ps(result, too_high, Broadcast(__builtin_inff())), too_low, Zero());
}

}  // namespace
}  // namespace bulkhead::kernels
