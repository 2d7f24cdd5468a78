// Measures one model on this machine: usage: bench_engine MODEL.gguf THREADS [RUNS]. Each run measures the probes and
// the engine one after the other, so that all see the same machine; one JSON object a run on stdout, for bench/run.
#include <fmt/format.h>

#include <cstdlib>

#include "base/sys.h"
#include "bench/engine/engine_runs.h"
#include "bench/engine/machine_limits.h"
#include "kernels/cpu_features.h"

namespace bulkhead::bench {
namespace {

constexpr uint32_t kPrompt = 512;
constexpr uint32_t kDecodeTokens = 32;
constexpr uint32_t kStreams = 8;

absl::Status MeasureOnce(EngineRuns& runs) {
  const auto file = runs.file().tensors();
  const std::span<const std::byte> weights(file.front().bytes.data(),
                                           file.back().bytes.data() + file.back().bytes.size());
  const double bandwidth = ReadBandwidth(runs.pool(), weights);
  const Int8Peak peak = MeasureInt8Peak(runs.pool());
  ASSIGN_OR_RETURN(const double decode, runs.Decode(kDecodeTokens, 1));
  ASSIGN_OR_RETURN(const double streams, runs.Decode(kDecodeTokens / 2, kStreams));
  ASSIGN_OR_RETURN(const double prefill, runs.Prefill(kPrompt));
  fmt::print(
      "{{\"engine\":\"bulkhead\",\"tier\":\"{}\",\"threads\":{},\"read_gb_s\":{:.2f},\"int8_gop_s\":{:.1f},\"int8_"
      "how\":"
      "\"{}\",\"decode\":{:.2f},\"decode_share\":{:.4f},\"decode8\":{:.2f},\"prefill\":{:.2f},\"prefill_share\":{:.4f}}"
      "}\n",
      runs.tier(), runs.pool().active_threads(), bandwidth / 1e9, peak.operations / 1e9, peak.how, decode,
      decode * static_cast<double>(runs.BytesPerStep()) / bandwidth, streams, prefill,
      prefill * runs.OperationsPerToken() / peak.operations);
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: bench_engine MODEL.gguf THREADS [RUNS]\n");
    return 2;
  }
  const auto threads = static_cast<uint32_t>(std::max(1, std::atoi(argv[2])));
  const int count = argc > 3 ? std::atoi(argv[3]) : 1;
  const auto runs = EngineRuns::Open(argv[1], threads, kStreams);
  absl::Status status = runs.status();
  for (int run = 0; status.ok() && run < count; ++run) status = MeasureOnce(**runs);
  if (status.ok()) return 0;
  fmt::print(stderr, "bench_engine: {}\n", Message(status));
  return 1;
}

}  // namespace
}  // namespace bulkhead::bench

int main(int argc, char** argv) { return bulkhead::bench::Main(argc, argv); }
