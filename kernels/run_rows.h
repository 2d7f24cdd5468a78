// How Compute cuts elementwise work into chunks. For compute*.cc only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/compute_pool.h"

namespace bulkhead::kernels {

// Work below this many floats a chunk is not worth a second thread's attention.
inline constexpr size_t kElementChunk = 8192;

inline uint32_t CeilDiv(size_t a, size_t b) { return static_cast<uint32_t>((a + b - 1) / b); }

// Runs work(first row, row after the last) over `rows` rows of `floats_each`, several rows a chunk where they are
// short.
template <typename Work>
void RunRows(ComputePool& pool, uint32_t rows, size_t floats_each, const Work& work) {
  const uint32_t per_chunk = static_cast<uint32_t>(
      std::clamp<size_t>(kElementChunk / std::max<size_t>(floats_each, 1), 1, std::max(rows, 1u)));
  pool.Run(CeilDiv(rows, per_chunk), [&](uint32_t chunk, const ComputePool::Worker&) {
    const uint32_t begin = chunk * per_chunk;
    work(begin, std::min(begin + per_chunk, rows));
  });
}

}  // namespace bulkhead::kernels
