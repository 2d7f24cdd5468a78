// The AVX-512 tier's source compiled a second time, its intrinsics emulated by SIMDe on AVX2, so that its arithmetic is
// tested on machines without the hardware. SIMDe's own aliases cannot be used: GCC's header already declares the names,
// so each intrinsic the tier uses is aliased here, after both headers; what SIMDe 0.7.2 lacks is written out.
#include <immintrin.h>
#include <simde/x86/avx512.h>

namespace {

struct EmulatedLanes {
  __m256 half[2];
};

inline EmulatedLanes Halves(simde__m512 x) {
  EmulatedLanes lanes;
  __builtin_memcpy(&lanes, &x, sizeof lanes);
  return lanes;
}

inline simde__m512 Joined(__m256 low, __m256 high) {
  const EmulatedLanes lanes{{low, high}};
  simde__m512 x;
  __builtin_memcpy(&x, &lanes, sizeof x);
  return x;
}

inline simde__m512 CvtphPs(__m256i halves) {
  return Joined(_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1)));
}

inline __m256i CvtpsPh(simde__m512 x) {
  const EmulatedLanes lanes = Halves(x);
  return _mm256_set_m128i(_mm256_cvtps_ph(lanes.half[1], _MM_FROUND_TO_NEAREST_INT),
                          _mm256_cvtps_ph(lanes.half[0], _MM_FROUND_TO_NEAREST_INT));
}

inline simde__m512i Cvtepu16Epi32(__m256i x) {
  const __m256i parts[2] = {_mm256_cvtepu16_epi32(_mm256_castsi256_si128(x)),
                            _mm256_cvtepu16_epi32(_mm256_extracti128_si256(x, 1))};
  simde__m512i result;
  __builtin_memcpy(&result, parts, sizeof result);
  return result;
}

inline simde__m512 Cvtepi32Ps(simde__m512i x) {
  __m256i parts[2];
  __builtin_memcpy(parts, &x, sizeof parts);
  return Joined(_mm256_cvtepi32_ps(parts[0]), _mm256_cvtepi32_ps(parts[1]));
}

// SIMDe 0.7.2 reads the weights' bytes as it should but is slow and lane-shuffles; the definition is plainer.
template <typename Vector>
inline Vector Dpbusd(Vector sum, Vector weights, Vector a) {
  int32_t sums[sizeof(Vector) / 4];
  uint8_t w[sizeof(Vector)];
  int8_t x[sizeof(Vector)];
  __builtin_memcpy(sums, &sum, sizeof sums);
  __builtin_memcpy(w, &weights, sizeof w);
  __builtin_memcpy(x, &a, sizeof x);
  for (unsigned i = 0; i < sizeof(Vector); ++i) sums[i / 4] += w[i] * x[i];
  Vector result;
  __builtin_memcpy(&result, sums, sizeof result);
  return result;
}

}  // namespace

#undef _mm256_dpbusd_epi32
#undef _mm512_cvtps_ph
#undef _mm512_cmp_ps_mask
#undef _mm512_extractf32x8_ps
#undef _mm512_slli_epi32
#define __m512 simde__m512
#define __m512i simde__m512i
#define __mmask16 simde__mmask16
#define _mm512_add_epi32 simde_mm512_add_epi32
#define _mm512_add_ps simde_mm512_add_ps
#define _mm512_castps512_ps256(x) Halves(x).half[0]
#define _mm512_castps_si512 simde_mm512_castps_si512
#define _mm512_castsi512_ps simde_mm512_castsi512_ps
#define _mm512_cmp_ps_mask simde_mm512_cmp_ps_mask
#define _mm512_cvtepi32_ps Cvtepi32Ps
#define _mm512_cvtepu16_epi32 Cvtepu16Epi32
#define _mm512_cvtph_ps CvtphPs
#define _mm512_cvtps_ph(x, rounding) CvtpsPh(x)
#define _mm512_div_ps simde_mm512_div_ps
#define _mm512_dpbusd_epi32 Dpbusd<simde__m512i>
#define _mm256_dpbusd_epi32 Dpbusd<__m256i>
#define _mm512_extractf32x8_ps(x, which) Halves(x).half[which]
#define _mm512_fmadd_ps simde_mm512_fmadd_ps
#define _mm512_loadu_ps simde_mm512_loadu_ps
#define _mm512_madd_epi16 simde_mm512_madd_epi16
#define _mm512_loadu_si512 simde_mm512_loadu_si512
#define _mm512_mask_mov_ps simde_mm512_mask_mov_ps
#define _mm512_max_ps simde_mm512_max_ps
#define _mm512_mul_ps simde_mm512_mul_ps
#define _mm512_set1_epi32 simde_mm512_set1_epi32
#define _mm512_set1_ps simde_mm512_set1_ps
#define _mm512_setzero_ps simde_mm512_setzero_ps
#define _mm512_slli_epi32 simde_mm512_slli_epi32
#define _mm512_storeu_ps simde_mm512_storeu_ps
#define _mm512_sub_epi32 simde_mm512_sub_epi32
#define _mm512_sub_ps simde_mm512_sub_ps
#define kAvx512Kernels kPortableAvx512Kernels

#include "kernels/x86/avx512.cc"
