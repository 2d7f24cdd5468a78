#include "bench/engine/machine_limits.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "bench/engine/stopwatch.h"
#include "kernels/cpu_features.h"

namespace bulkhead::bench {
namespace {

constexpr size_t kReadChunk = size_t{1} << 20;
constexpr uint32_t kPeakChunks = 64;

std::atomic<uint64_t> results_sink{0};  // keeps the compiler from leaving the work out

#if defined(__x86_64__)
__attribute__((target("avx2"))) uint64_t SumAvx2(const std::byte* data, size_t size) {
  __m256i sums[4] = {};
  size_t i = 0;
  for (; i + 128 <= size; i += 128) {
    for (size_t part = 0; part < 4; ++part) {
      sums[part] = _mm256_xor_si256(sums[part], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data + i) + part));
    }
  }
  const __m256i all = _mm256_xor_si256(_mm256_xor_si256(sums[0], sums[1]), _mm256_xor_si256(sums[2], sums[3]));
  alignas(32) uint64_t words[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(words), all);
  return words[0] ^ words[1] ^ words[2] ^ words[3];
}

constexpr uint32_t kPeakRounds = 200'000;
constexpr uint32_t kPeakChains = 10;

// 64 operations a chain and round: 32 products and their additions.
__attribute__((target("avx2"))) uint64_t Int8Avx2() {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i a = _mm256_set1_epi8(3);
  const __m256i b = _mm256_set1_epi8(5);
  __m256i sums[kPeakChains] = {};
  for (uint32_t round = 0; round < kPeakRounds; ++round) {
#pragma GCC unroll 10
    for (uint32_t chain = 0; chain < kPeakChains; ++chain) {
      __asm__ volatile("" : "+x"(a));  // or one product would serve all chains
      sums[chain] = _mm256_add_epi32(sums[chain], _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
    }
  }
  __m256i all = sums[0];
  for (uint32_t chain = 1; chain < kPeakChains; ++chain) all = _mm256_add_epi32(all, sums[chain]);
  return static_cast<uint64_t>(_mm256_extract_epi32(all, 0));
}

// 128 operations a chain and round.
__attribute__((target("avx512f,avx512bw,avx512vnni"))) uint64_t Int8Vnni() {
  __m512i a = _mm512_set1_epi8(3);
  const __m512i b = _mm512_set1_epi8(5);
  __m512i sums[kPeakChains] = {};
  for (uint32_t round = 0; round < kPeakRounds; ++round) {
#pragma GCC unroll 10
    for (uint32_t chain = 0; chain < kPeakChains; ++chain) {
      __asm__ volatile("" : "+v"(a));
      sums[chain] = _mm512_dpbusd_epi32(sums[chain], a, b);
    }
  }
  __m512i all = sums[0];
  for (uint32_t chain = 1; chain < kPeakChains; ++chain) all = _mm512_add_epi32(all, sums[chain]);
  alignas(64) int32_t words[16];
  _mm512_store_si512(words, all);
  return static_cast<uint64_t>(words[0]);
}
#endif

uint64_t SumPlain(const std::byte* data, size_t size) {
  uint64_t sum = 0;
  for (size_t i = 0; i + 8 <= size; i += 8) {
    uint64_t word;
    std::memcpy(&word, data + i, sizeof word);
    sum ^= word;
  }
  return sum;
}

}  // namespace

double ReadBandwidth(kernels::ComputePool& pool, std::span<const std::byte> bytes) {
  auto sum = &SumPlain;
#if defined(__x86_64__)
  if (kernels::DetectCpuFeatures().avx2) sum = &SumAvx2;
#endif
  const auto chunks = static_cast<uint32_t>((bytes.size() + kReadChunk - 1) / kReadChunk);
  const auto start = SteadyClock::now();
  pool.Run(chunks, [&](uint32_t chunk, const kernels::ComputePool::Worker&) {
    const size_t begin = chunk * kReadChunk;
    results_sink.fetch_xor(sum(bytes.data() + begin, std::min(kReadChunk, bytes.size() - begin)));
  });
  return static_cast<double>(bytes.size()) / SecondsSince(start);
}

Int8Peak MeasureInt8Peak(kernels::ComputePool& pool) {
#if defined(__x86_64__)
  const kernels::CpuFeatures features = kernels::DetectCpuFeatures();
  const bool vnni = features.avx512vnni && features.avx512bw;
  if (!vnni && !features.avx2) return {0, "none"};
  const auto work = vnni ? &Int8Vnni : &Int8Avx2;
  const auto start = SteadyClock::now();
  pool.Run(kPeakChunks, [&](uint32_t, const kernels::ComputePool::Worker&) { results_sink.fetch_xor(work()); });
  const double operations = double{kPeakChunks} * kPeakRounds * kPeakChains * (vnni ? 128 : 64);
  return {operations / SecondsSince(start), vnni ? "avx512 vpdpbusd" : "avx2 vpmaddubsw+vpmaddwd"};
#else
  static_cast<void>(pool);
  return {0, "none"};
#endif
}

}  // namespace bulkhead::bench
