// Prefill: sixteen rows of a block type are unpacked once into scratch, [block][step][row][bytes of a step], and
// multiplied with all tokens, some at a time. Each (row, token) keeps its own four chains.
#pragma once

#include "kernels/x86/blocks.h"

namespace bulkhead::kernels {
namespace {

constexpr uint32_t kSuperBlocks = 8;  // 32-blocks of a K type's super-block

struct Panel {
  uint8_t* weights;  // [blocks][32 * kPanelRows * Format::kPanelBytes]
  float* scales;     // [blocks][kPanelRows]
  float* minimums;   // likewise, their signs turned; for formats that have them
  int16_t* tile;     // [kTileTokens][cols], for formats that want 16-bit activations
};

inline Panel PanelIn(void* scratch, uint32_t cols) {
  auto* bytes = static_cast<uint8_t*>(scratch);
  uint8_t* scales = bytes + size_t{cols} * kPanelRows * sizeof(int16_t);
  uint8_t* minimums = scales + size_t{cols} / 32 * kPanelRows * sizeof(float);
  uint8_t* tile = minimums + size_t{cols} / 32 * kPanelRows * sizeof(float);
  return {bytes, reinterpret_cast<float*>(scales), reinterpret_cast<float*>(minimums),
          reinterpret_cast<int16_t*>(tile)};
}

inline int32_t HalfAt(const uint8_t* block) {
  uint16_t half;
  __builtin_memcpy(&half, block, sizeof half);
  return half;
}

inline __m256 EightScales(const uint8_t* const* blocks) {
  // Pairs joined in integer registers: the shuffle ports are busy with the transposition.
  const auto pair = [blocks](int i) { return HalfAt(blocks[i]) | HalfAt(blocks[i + 1]) << 16; };
  return _mm256_cvtph_ps(_mm_setr_epi32(pair(0), pair(2), pair(4), pair(6)));
}

// Eight rows' blocks from each of their starts on.
template <typename Format>
inline void UnpackRows(const uint8_t** at, uint32_t blocks, uint32_t half, const Panel& panel) {
  constexpr size_t kBlock = size_t{32} * kPanelRows * Format::kPanelBytes;
  for (uint32_t b = 0; b < blocks; ++b) {
    _mm256_storeu_ps(panel.scales + b * kPanelRows + half * 8, EightScales(at));
    Format::Unpack(at, panel.weights + b * kBlock + half * 32);
    for (uint32_t i = 0; i < 8; ++i) at[i] += Format::kBytes;
  }
}

// Rows past `count` repeat the last one; nobody reads their results.
template <typename Format>
inline void UnpackPanel(const uint8_t* rows, size_t row_bytes, uint32_t count, uint32_t blocks, const Panel& panel) {
  for (uint32_t half = 0; half < 2; ++half) {
    const uint8_t* at[8];
    for (uint32_t i = 0; i < 8; ++i) {
      const uint32_t row = half * 8 + i;
      at[i] = rows + (row < count ? row : count - 1) * row_bytes;
    }
    if constexpr (requires { Format::kSuperBytes; }) {
      for (uint32_t super = 0; super < blocks / kSuperBlocks; ++super) {
        Format::UnpackSuper(at, super, half, panel);
        for (auto& start : at) start += Format::kSuperBytes;
      }
    } else {
      UnpackRows<Format>(at, blocks, half, panel);
    }
  }
}

inline const int8_t* TileActivations(const Activations& x, uint32_t token, uint32_t /*count*/, const Panel& /*panel*/,
                                     const int8_t* /*type*/) {
  return x.q8 + size_t{token} * x.cols;
}
inline const int16_t* TileActivations(const Activations& x, uint32_t token, uint32_t count, const Panel& panel,
                                      const int16_t* /*type*/) {
  const int8_t* from = x.q8 + size_t{token} * x.cols;
  for (size_t k = 0; k < size_t{count} * x.cols; k += 16) {
    StoreBytes(panel.tile + k, _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + k))));
  }
  return panel.tile;
}

inline void StoreRows(float* out, __m256 low, __m256 high, uint32_t count) {
  if (count == kPanelRows) {
    _mm256_storeu_ps(out, low);
    _mm256_storeu_ps(out + 8, high);
    return;
  }
  float rows[kPanelRows];
  _mm256_storeu_ps(rows, low);
  _mm256_storeu_ps(rows + 8, high);
  for (uint32_t i = 0; i < count; ++i) out[i] = rows[i];
}

// Block b's share of the next panel's memory.
template <typename Format>
inline void FetchNext(const uint8_t* next, uint32_t b) {
  constexpr size_t kShare = size_t{kPanelRows} * Format::kBytes;
  for (size_t line = 0; line < kShare; line += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(next + b * kShare + line), _MM_HINT_T1);
  }
}

// Multiplies the panel with kTokens tokens from `token` on; each tier has its own. `next` is where the next panel's
// rows begin: its memory is fetched while this one computes.
template <typename Format, int kTokens>
void PanelTile(const Panel& panel, const Activations& x, uint32_t token, uint32_t rows, const uint8_t* next, float* out,
               size_t out_stride);

template <typename Format>
inline void PanelTokens(const Panel& panel, const Activations& x, uint32_t rows, const uint8_t* next, float* out,
                        size_t out_stride) {
  uint32_t t = 0;
  for (; t + kTierTokens <= x.tokens; t += kTierTokens) {
    PanelTile<Format, kTierTokens>(panel, x, t, rows, next, out, out_stride);
  }
  for (; t + 4 <= x.tokens; t += 4) PanelTile<Format, 4>(panel, x, t, rows, next, out, out_stride);
  switch (x.tokens - t) {
    case 3:
      PanelTile<Format, 3>(panel, x, t, rows, next, out, out_stride);
      break;
    case 2:
      PanelTile<Format, 2>(panel, x, t, rows, next, out, out_stride);
      break;
    case 1:
      PanelTile<Format, 1>(panel, x, t, rows, next, out, out_stride);
      break;
    default:
      break;
  }
}

template <typename Format>
inline void PanelMatMul(const MatMulTask& task, uint32_t row_begin, uint32_t row_end, void* scratch) {
  const Panel panel = PanelIn(scratch, task.x.cols);
  const uint8_t* data = static_cast<const uint8_t*>(task.weights.data);
  for (uint32_t r = row_begin; r < row_end; r += kPanelRows) {
    const uint32_t count = row_end - r < kPanelRows ? row_end - r : kPanelRows;
    UnpackPanel<Format>(data + r * task.weights.row_bytes, task.weights.row_bytes, count, task.x.cols / 32, panel);
    PanelTokens<Format>(panel, task.x, count, data + (r + count) * task.weights.row_bytes, task.out + r,
                        task.out_stride);
  }
}

template <typename Format>
inline void BlockMatMul(const MatMulTask& task, uint32_t row_begin, uint32_t row_end, void* scratch,
                        size_t scratch_bytes) {
  if (task.x.tokens < Format::kPanelFromTokens || scratch_bytes < MatMulScratchBytes(task.x.cols)) {
    DirectMatMul<Format>(task, row_begin, row_end);
    return;
  }
  PanelMatMul<Format>(task, row_begin, row_end, scratch);
}

}  // namespace
}  // namespace bulkhead::kernels
