// Matrices of F32, F16 and BF16 in Lanes (see vector_math.h). Few tokens read the rows from the file; many first turn
// a group of rows into floats in scratch.
#pragma once

#include "kernels/x86/vector_math.h"

namespace bulkhead::kernels {
namespace {

struct ReadF32 {
  static constexpr uint32_t kBytes = 4;
  static Lanes At(const uint8_t* p) { return Load(reinterpret_cast<const float*>(p)); }
};
struct ReadF16 {
  static constexpr uint32_t kBytes = 2;
  static Lanes At(const uint8_t* p) { return LoadHalf(p); }
};
struct ReadBf16 {
  static constexpr uint32_t kBytes = 2;
  static Lanes At(const uint8_t* p) { return LoadBf16(p); }
};

// The last elements of a row whose length is no multiple of 16, filled up with zeros.
template <typename Read>
inline Lanes ReadSome(const uint8_t* p, uint32_t count) {
  uint8_t bytes[kSumLanes * Read::kBytes] = {};
  for (uint32_t i = 0; i < count * Read::kBytes; ++i) bytes[i] = p[i];
  return Read::At(bytes);
}

constexpr size_t kFloatPrefetchBytes = 2048;

// kRows rows of weights with kTokens tokens.
template <typename Read, int kRows, int kTokens>
inline void FloatTile(const uint8_t* rows, size_t row_bytes, const float* x, size_t x_stride, uint32_t cols, float* out,
                      size_t out_stride) {
  Lanes sum[kRows][kTokens];
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTokens; ++t) sum[r][t] = Zero();
  }
  // One ascending stream through all rows of the tile and on, as blocks.h explains.
  const uint8_t* ahead = rows + (kRows - 1) * row_bytes + kFloatPrefetchBytes;
  uint32_t k = 0;
  for (; k + kSumLanes <= cols; k += kSumLanes) {
    for (uint32_t line = 0; kTokens == 1 && line < kSumLanes * Read::kBytes * kRows; line += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(ahead + size_t{k} * Read::kBytes * kRows + line), _MM_HINT_T0);
    }
    Lanes weights[kRows];
    for (int r = 0; r < kRows; ++r) weights[r] = Read::At(rows + r * row_bytes + size_t{k} * Read::kBytes);
    for (int t = 0; t < kTokens; ++t) {
      const Lanes a = Load(x + t * x_stride + k);
      for (int r = 0; r < kRows; ++r) sum[r][t] = Fma(weights[r], a, sum[r][t]);
    }
  }
  for (int r = 0; k < cols && r < kRows; ++r) {
    const Lanes weights = ReadSome<Read>(rows + r * row_bytes + size_t{k} * Read::kBytes, cols - k);
    for (int t = 0; t < kTokens; ++t) sum[r][t] = Fma(weights, LoadSome(x + t * x_stride + k, cols - k), sum[r][t]);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTokens; ++t) out[t * out_stride + r] = Sum(sum[r][t]);
  }
}

// All tokens with kRows rows.
template <typename Read, int kRows>
inline void FloatRows(const uint8_t* rows, size_t row_bytes, const Activations& x, float* out, size_t out_stride) {
  uint32_t t = 0;
  for (; t + kFloatTileTokens <= x.tokens; t += kFloatTileTokens) {
    FloatTile<Read, kRows, kFloatTileTokens>(rows, row_bytes, x.f32 + t * x.f32_stride, x.f32_stride, x.cols,
                                             out + t * out_stride, out_stride);
  }
  for (; t < x.tokens; ++t) {
    FloatTile<Read, kRows, 1>(rows, row_bytes, x.f32 + t * x.f32_stride, x.f32_stride, x.cols, out + t * out_stride,
                              out_stride);
  }
}

template <typename Read>
inline void FloatRange(const uint8_t* rows, size_t row_bytes, uint32_t count, const Activations& x, float* out,
                       size_t out_stride) {
  uint32_t r = 0;
  if (x.tokens < kFloatTileTokens) {
    for (; r + 4 <= count; r += 4) FloatRows<Read, 4>(rows + r * row_bytes, row_bytes, x, out + r, out_stride);
  }
  for (; r + kFloatTileRows <= count; r += kFloatTileRows) {
    FloatRows<Read, kFloatTileRows>(rows + r * row_bytes, row_bytes, x, out + r, out_stride);
  }
  for (; r < count; ++r) FloatRows<Read, 1>(rows + r * row_bytes, row_bytes, x, out + r, out_stride);
}

template <typename Read>
inline void UnpackFloats(const uint8_t* row, uint32_t cols, float* out) {
  uint32_t k = 0;
  for (; k + kSumLanes <= cols; k += kSumLanes) Store(out + k, Read::At(row + size_t{k} * Read::kBytes));
  if (k < cols) StoreSome(out + k, ReadSome<Read>(row + size_t{k} * Read::kBytes, cols - k), cols - k);
}

constexpr uint32_t kUnpackFromTokens = 8;
constexpr uint32_t kUnpackRows = 8;
constexpr uint32_t kChunkTokens = 24;  // their activations stay in the second-level cache for all rows of a group

// FloatRange for some tokens after the other.
template <typename Read>
inline void FloatChunks(const uint8_t* rows, size_t row_bytes, uint32_t count, const Activations& x, float* out,
                        size_t out_stride) {
  for (uint32_t t = 0; t < x.tokens; t += kChunkTokens) {
    Activations chunk = x;
    chunk.tokens = x.tokens - t < kChunkTokens ? x.tokens - t : kChunkTokens;
    chunk.f32 = x.f32 + t * x.f32_stride;
    FloatRange<Read>(rows, row_bytes, count, chunk, out + t * out_stride, out_stride);
  }
}

template <typename Read>
inline void FloatMatMul(const MatMulTask& task, uint32_t row_begin, uint32_t row_end, void* scratch,
                        size_t scratch_bytes) {
  const size_t row_bytes = task.weights.row_bytes;
  const uint8_t* data = static_cast<const uint8_t*>(task.weights.data);
  const uint32_t cols = task.x.cols;
  const bool unpack = Read::kBytes != 4 && task.x.tokens >= kUnpackFromTokens &&
                      scratch_bytes >= size_t{kUnpackRows} * cols * sizeof(float);
  if (!unpack) {
    FloatChunks<Read>(data + row_begin * row_bytes, row_bytes, row_end - row_begin, task.x, task.out + row_begin,
                      task.out_stride);
    return;
  }
  auto* panel = static_cast<float*>(scratch);
  for (uint32_t r = row_begin; r < row_end; r += kUnpackRows) {
    const uint32_t count = row_end - r < kUnpackRows ? row_end - r : kUnpackRows;
    for (uint32_t i = 0; i < count; ++i) {
      UnpackFloats<Read>(data + (r + i) * row_bytes, cols, panel + size_t{i} * cols);
    }
    FloatChunks<ReadF32>(reinterpret_cast<const uint8_t*>(panel), size_t{cols} * sizeof(float), count, task.x,
                         task.out + r, task.out_stride);
  }
}

}  // namespace
}  // namespace bulkhead::kernels
