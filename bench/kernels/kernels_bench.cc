// Measures the kernels against the machine's own limits, on the shapes of Qwen3-0.6B: decode as a share of the rate at
// which the same threads read the same mapped memory, prefill as a share of the measured int8 peak. Medians of several
// rounds, warmed, random weights, huge pages asked for.
//
//   kernels_bench [--threads N] [--rounds N] [--tokens N] [--layers N] [--clock wall|cpu]
//
// --clock cpu divides by the processor time of all threads together: shares stay meaningful on a machine that others
// use too, with one thread.
#include <fmt/format.h>
#include <immintrin.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/sys.h"
#include "kernels/compute.h"
#include "kernels/dispatch.h"

namespace bulkhead::kernels {
namespace {

struct Settings {
  uint32_t threads = 1;
  int rounds = 7;
  uint32_t tokens = 512;
  uint32_t layers = 28;
};

struct Shape {
  uint32_t rows;
  uint32_t cols;
};

// One layer's matrices; every layer has its own weights, so that a pass reads far more than the caches hold.
constexpr Shape kLayer[] = {{2048, 1024}, {1024, 1024}, {1024, 1024}, {1024, 2048},
                            {3072, 1024}, {3072, 1024}, {1024, 3072}};
constexpr Shape kOutput = {151936, 1024};

clockid_t g_clock = CLOCK_MONOTONIC;

double Now() { return std::chrono::duration<double>(sys::ClockNow(g_clock)).count(); }

struct Times {
  double median;
  double low;
  double high;
};

Times Measure(int rounds, const std::function<void()>& run) {
  run();
  std::vector<double> seconds;
  for (int i = 0; i < rounds; ++i) {
    const double start = Now();
    run();
    seconds.push_back(Now() - start);
  }
  std::sort(seconds.begin(), seconds.end());
  return {seconds[seconds.size() / 2], seconds.front(), seconds.back()};
}

uint8_t* MapMemory(size_t size) {
  void* data = nullptr;
  if (sys::Mmap(&data, nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) < 0) {
    fmt::print(stderr, "cannot map {} bytes\n", size);
    std::exit(1);
  }
  sys::Madvise(data, size, MADV_HUGEPAGE);
  return static_cast<uint8_t*>(data);
}

// Reads everything with every thread; the sum keeps the compiler from leaving it out.
__attribute__((target("avx2"))) uint64_t ReadRange(const uint8_t* data, size_t size) {
  __m256i sum[4] = {};
  for (size_t i = 0; i + 128 <= size; i += 128) {
    for (int lane = 0; lane < 4; ++lane) {
      sum[lane] =
          _mm256_xor_si256(sum[lane], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data + i + 32 * lane)));
    }
    _mm_prefetch(reinterpret_cast<const char*>(data + i + 4096), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(data + i + 4096 + 64), _MM_HINT_T0);
  }
  const __m256i all = _mm256_xor_si256(_mm256_xor_si256(sum[0], sum[1]), _mm256_xor_si256(sum[2], sum[3]));
  return static_cast<uint64_t>(_mm256_extract_epi64(all, 0) ^ _mm256_extract_epi64(all, 1) ^
                               _mm256_extract_epi64(all, 2) ^ _mm256_extract_epi64(all, 3));
}

// Bytes per second.
double ProbeRead(const Settings& settings, ComputePool& pool, const uint8_t* data, size_t size) {
  constexpr size_t kChunk = 256 * 1024;
  std::vector<uint64_t> sums(size / kChunk);
  const Times times = Measure(settings.rounds, [&] {
    pool.Run(static_cast<uint32_t>(sums.size()), [&](uint32_t chunk, const ComputePool::Worker&) {
      sums[chunk] = ReadRange(data + chunk * kChunk, kChunk);
    });
  });
  return static_cast<double>(sums.size() * kChunk) / times.median;
}

// vpmaddubsw, vpmaddwd and vpaddd from registers: what an int8 product summed to 32 bits costs at least.
__attribute__((target("avx2"))) int32_t Int8Loop(uint64_t steps) {
  __m256i sum[6] = {};
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5);
  for (uint64_t i = 0; i < steps; ++i) {
    for (auto& lane : sum) {
      asm volatile("" : "+x"(a), "+x"(b));
      lane = _mm256_add_epi32(lane, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
    }
  }
  int32_t total = 0;
  for (const auto& lane : sum) total += _mm256_extract_epi32(lane, 0);
  return total;
}

// Integer operations (a multiplication and an addition each count) per second.
double ProbeInt8(const Settings& settings, ComputePool& pool) {
  constexpr uint64_t kSteps = 2'000'000;
  const uint32_t chunks = pool.threads() * 8;
  std::vector<int32_t> sums(chunks);
  const Times times = Measure(settings.rounds, [&] {
    pool.Run(chunks, [&](uint32_t chunk, const ComputePool::Worker&) { sums[chunk] = Int8Loop(kSteps); });
  });
  return static_cast<double>(chunks) * kSteps * 6 * 64 / times.median;
}

class Bench {
 public:
  Bench(const Settings& settings, const Compute& compute, WeightType type) : settings_(settings), compute_(compute) {
    for (uint32_t layer = 0; layer < settings.layers; ++layer) {
      for (const Shape& shape : kLayer) Add(shape, type);
    }
    Add(kOutput, type);
    data_ = MapMemory(bytes_);
    std::mt19937_64 random(1);
    for (size_t i = 0; i + 8 <= bytes_; i += 8) {
      const uint64_t word = random();
      std::memcpy(data_ + i, &word, 8);
    }
    // Scales must be small numbers, not whatever the random bits say.
    const WeightTypeInfo& info = InfoOf(type);
    if (info.activation == ActivationFormat::kQ8Group32) {
      for (size_t at = 0; at < bytes_; at += info.block_bytes) data_[at + 1] = 0x20;
    }
    size_t offset = 0;
    for (WeightMatrix& matrix : matrices_) {
      matrix.data = data_ + offset;
      offset += matrix.rows * matrix.row_bytes;
    }
    x_.resize(size_t{std::max(settings.tokens, 8u)} * 3072);
    std::normal_distribution<float> normal;
    for (float& value : x_) value = normal(random);
    out_.resize(std::max<size_t>(size_t{settings.tokens} * 3072, size_t{8} * kOutput.rows));
    buffer_.resize(ActivationBytes(std::max(settings.tokens, 8u), 3072) + 64);
  }
  ~Bench() { sys::Munmap(data_, bytes_); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  [[nodiscard]] const uint8_t* data() const { return data_; }
  [[nodiscard]] size_t bytes() const { return bytes_; }

  // Every matrix with `tokens` tokens; the output matrix only when asked.
  Times Pass(uint32_t tokens, bool with_output) {
    return Measure(settings_.rounds, [&] {
      for (const WeightMatrix& matrix : matrices_) {
        if (matrix.rows == kOutput.rows && !with_output) continue;
        auto* buffer = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(buffer_.data()) + 63) / 64 * 64);
        const ConstRows x{x_.data(), matrix.cols, tokens, matrix.cols};
        const bool quantise = InfoOf(matrix.type).activation == ActivationFormat::kQ8Group32;
        const Activations a = compute_.Prepare(x, quantise, {{buffer, buffer_.size() - 64}});
        compute_.MatMul({.weights = matrix, .x = a, .out = out_.data(), .out_stride = matrix.rows});
      }
    });
  }

  [[nodiscard]] double LayerWeights() const {
    double weights = 0;
    for (const WeightMatrix& matrix : matrices_) {
      if (matrix.rows != kOutput.rows) weights += static_cast<double>(matrix.rows) * matrix.cols;
    }
    return weights;
  }

 private:
  void Add(const Shape& shape, WeightType type) {
    const size_t row_bytes = RowBytes(type, shape.cols);
    matrices_.push_back({nullptr, row_bytes, shape.rows, shape.cols, type});
    bytes_ += row_bytes * shape.rows;
  }

  const Settings& settings_;
  const Compute& compute_;
  std::vector<WeightMatrix> matrices_;
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
  std::vector<float> x_, out_;
  std::vector<uint8_t> buffer_;
};

void RunType(const Settings& settings, ComputePool& pool, WeightType type, double int8_peak) {
  const Compute compute(*DefaultTier().table, pool);
  Bench bench(settings, compute, type);
  const double read = ProbeRead(settings, pool, bench.data(), bench.bytes());
  fmt::print("{}: {:.0f} MB of weights, probe reads {:.1f} GB/s\n", InfoOf(type).name,
             static_cast<double>(bench.bytes()) / 1e6, read / 1e9);
  for (uint32_t tokens : {1u, 2u, 3u, 4u, 8u}) {
    const Times times = bench.Pass(tokens, true);
    const double rate = static_cast<double>(bench.bytes()) / times.median;
    fmt::print(
        "  decode, {} streams: {:6.2f} ms ({:.2f} to {:.2f}), {:5.1f} GB/s = {:3.0f} % of the probe, {:.1f} tokens/s\n",
        tokens, times.median * 1e3, times.low * 1e3, times.high * 1e3, rate / 1e9, rate / read * 100,
        tokens / times.median);
  }
  const Times times = bench.Pass(settings.tokens, false);
  const double operations = bench.LayerWeights() * 2 * settings.tokens / times.median;
  fmt::print("  prefill {}: {:.1f} ms ({:.1f} to {:.1f}), {:.1f} Gop/s = {:.0f} % of the int8 peak, {:.1f} tokens/s\n",
             settings.tokens, times.median * 1e3, times.low * 1e3, times.high * 1e3, operations / 1e9,
             operations / int8_peak * 100, settings.tokens / times.median);
}

int Main(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const int value = std::atoi(argv[i + 1]);
    if (flag == "--threads") settings.threads = static_cast<uint32_t>(value);
    if (flag == "--rounds") settings.rounds = value;
    if (flag == "--layers") settings.layers = static_cast<uint32_t>(value);
    if (flag == "--clock" && std::string(argv[i + 1]) == "cpu") g_clock = CLOCK_PROCESS_CPUTIME_ID;
    if (flag == "--tokens") settings.tokens = static_cast<uint32_t>(value);
  }
  auto pool = ComputePool::Create({.threads = settings.threads, .scratch_bytes = ThreadScratchBytes(4096, 8, 128)});
  if (!pool.ok()) return 1;
  const TierChoice& tier = DefaultTier();
  fmt::print("tier {} {}\n", tier.table->name, tier.reason);
  const double int8_peak = ProbeInt8(settings, **pool);
  fmt::print("{} threads, int8 peak {:.0f} Gop/s\n", settings.threads, int8_peak / 1e9);
  for (WeightType type : {WeightType::kQ8_0, WeightType::kQ4_0, WeightType::kQ4_K, WeightType::kQ6_K, WeightType::kQ5_0,
                          WeightType::kF16}) {
    RunType(settings, **pool, type, int8_peak);
  }
  return 0;
}

}  // namespace
}  // namespace bulkhead::kernels

int main(int argc, char** argv) { return bulkhead::kernels::Main(argc, argv); }
