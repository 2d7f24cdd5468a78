#include "engine/runtime/prefill_pacer.h"

#include <algorithm>

namespace bulkhead::engine {
namespace {

constexpr double kSafety = 0.8;         // later positions attend to more
constexpr double kBesideStreams = 0.4;  // a stream's longest gap while a prompt loads
constexpr double kDecay = 0.7;

}  // namespace

uint32_t PrefillPacer::Rows(bool streams_running) const {
  if (fixed_ != 0) return fixed_;
  if (largest_ == 0) return kFirstChunk;
  const double budget = static_cast<double>(limit_.count()) * (streams_running ? kBesideStreams : kSafety);
  const double rows = std::min(budget / std::max(row_ns_, 1.0), 4.0 * largest_);
  return std::max(kSmallestChunk, static_cast<uint32_t>(rows));
}

void PrefillPacer::Record(uint32_t rows, Duration took) {
  if (rows == 0) return;
  const double row_ns = static_cast<double>(took.count()) / rows;
  // A handful of rows costs as much as reading the weights once; that says nothing about a large chunk.
  row_ns_ = rows < largest_ ? std::min(std::max(row_ns, kDecay * row_ns_), row_ns_ / kDecay + 1) : row_ns;
  largest_ = std::max(largest_, rows);
}

}  // namespace bulkhead::engine
