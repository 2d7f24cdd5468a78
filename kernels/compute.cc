#include "kernels/compute.h"

#include <algorithm>

#include "kernels/run_rows.h"

namespace bulkhead::kernels {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t AlignUp(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// A decode step's chunk is about this many bytes of weights: some microseconds of reading, so that threads end
// together, yet long enough that taking a chunk costs nothing.
constexpr size_t kDecodeChunkBytes = 64 * 1024;
constexpr uint32_t kDecodeTokens = 8;
constexpr uint32_t kRowsMultiple = 16;

uint32_t RowsPerChunk(const MatMulTask& task) {
  if (task.x.tokens > kDecodeTokens) return kRowsMultiple;
  const size_t rows = kDecodeChunkBytes / std::max<size_t>(task.weights.row_bytes, 1) / kRowsMultiple * kRowsMultiple;
  return static_cast<uint32_t>(std::max<size_t>(rows, kRowsMultiple));
}

}  // namespace

size_t ActivationBytes(uint32_t tokens, uint32_t cols) {
  const size_t groups = size_t{tokens} * (cols / kActivationGroup);
  return AlignUp(size_t{tokens} * cols) + AlignUp(groups * sizeof(float)) + AlignUp(groups * sizeof(int32_t));
}

size_t ThreadScratchBytes(uint32_t max_cols, uint32_t query_heads_per_kv_head, uint32_t head_size) {
  return std::max(MatMulScratchBytes(max_cols), AttentionScratchBytes(query_heads_per_kv_head, head_size));
}

Activations Compute::Prepare(const ConstRows& x, bool quantise, const ActivationBuffer& buffer) const {
  Activations result{.tokens = x.tokens,
                     .cols = x.count,
                     .f32 = x.data,
                     .f32_stride = x.stride,
                     .q8 = nullptr,
                     .q8_scale = nullptr,
                     .q8_sum = nullptr};
  if (!quantise) return result;
  const uint32_t groups = x.count / kActivationGroup;
  auto* q8 = reinterpret_cast<int8_t*>(buffer.memory.data());
  auto* scale = reinterpret_cast<float*>(buffer.memory.data() + AlignUp(size_t{x.tokens} * x.count));
  auto* sum = reinterpret_cast<int32_t*>(reinterpret_cast<std::byte*>(scale) +
                                         AlignUp(size_t{x.tokens} * groups * sizeof(float)));
  RunRows(pool_, x.tokens, x.count, [&](uint32_t begin, uint32_t end) {
    for (size_t t = begin; t < end; ++t) {
      kernels_.quantise_q8(x.data + t * x.stride, x.count, q8 + t * x.count, scale + t * groups, sum + t * groups);
    }
  });
  result.q8 = q8;
  result.q8_scale = scale;
  result.q8_sum = sum;
  return result;
}

void Compute::MatMul(std::span<const MatMulTask> tasks) const {
  uint32_t chunks = 0;
  for (const MatMulTask& task : tasks) chunks += CeilDiv(task.weights.rows, RowsPerChunk(task));
  pool_.Run(chunks, [&](uint32_t chunk, const ComputePool::Worker& worker) {
    for (const MatMulTask& task : tasks) {
      const uint32_t per_chunk = RowsPerChunk(task);
      const uint32_t here = CeilDiv(task.weights.rows, per_chunk);
      if (chunk < here) {
        const uint32_t begin = chunk * per_chunk;
        kernels_.matmul(&task, begin, std::min(begin + per_chunk, task.weights.rows), worker.scratch.data(),
                        worker.scratch.size());
        return;
      }
      chunk -= here;
    }
  });
}

void Compute::EmbeddingLookup(const WeightMatrix& embedding, const uint32_t* ids, const Rows& out) const {
  RunRows(pool_, out.tokens, out.count, [&](uint32_t begin, uint32_t end) {
    for (size_t t = begin; t < end; ++t) {
      const auto* row = static_cast<const std::byte*>(embedding.data) + ids[t] * embedding.row_bytes;
      kernels_.dequantise(embedding.type, row, out.count, out.data + t * out.stride);
    }
  });
}

void Compute::RmsNorm(const ConstRows& x, const float* weight, float epsilon, const Rows& out) const {
  RunRows(pool_, x.tokens, x.count, [&](uint32_t begin, uint32_t end) {
    for (size_t t = begin; t < end; ++t) {
      kernels_.rms_norm(x.data + t * x.stride, weight, epsilon, x.count, out.data + t * out.stride);
    }
  });
}

void Compute::Rope(const Rows& x, uint32_t heads, uint32_t head_size, const RopeTable& table) const {
  RunRows(pool_, x.tokens, size_t{heads} * head_size, [&](uint32_t begin, uint32_t end) {
    for (size_t t = begin; t < end; ++t) {
      const float* cos_sin = table.table + size_t{table.rows[t]} * table.rotated;
      for (size_t h = 0; h < heads; ++h) {
        kernels_.rope(x.data + t * x.stride + h * head_size, table.rotated, table.pairing, cos_sin);
      }
    }
  });
}

void Compute::StoreKv(const ConstRows& x, uint32_t head_size, KvType type, size_t head_stride,
                      void* const* destinations) const {
  const size_t element = type == KvType::kF32 ? sizeof(float) : sizeof(uint16_t);
  RunRows(pool_, x.tokens, x.count, [&](uint32_t begin, uint32_t end) {
    for (size_t t = begin; t < end; ++t) {
      for (size_t h = 0; h < x.count / head_size; ++h) {
        kernels_.store_kv(x.data + t * x.stride + h * head_size, head_size, type,
                          static_cast<std::byte*>(destinations[t]) + h * head_stride * element);
      }
    }
  });
}

void Compute::Attention(const AttentionShape& shape, std::span<const AttentionSpan> spans, const ConstRows& q,
                        const Rows& out) const {
  const uint32_t group = shape.heads / shape.kv_heads;
  auto tiles = [](const AttentionSpan& span) { return CeilDiv(span.tokens, kAttentionTokens); };
  uint32_t chunks = 0;
  for (const AttentionSpan& span : spans) chunks += tiles(span) * shape.kv_heads;
  pool_.Run(chunks, [&](uint32_t chunk, const ComputePool::Worker& worker) {
    for (const AttentionSpan& span : spans) {
      const uint32_t here = tiles(span) * shape.kv_heads;
      if (chunk >= here) {
        chunk -= here;
        continue;
      }
      // The tile with the longest past first: the short ones then fill the threads' last gaps.
      const uint32_t tile = tiles(span) - 1 - chunk / shape.kv_heads;
      const uint32_t kv_head = chunk % shape.kv_heads;
      const uint32_t token = tile * kAttentionTokens;
      const size_t row = size_t{span.first_token} + token;
      const size_t head = size_t{kv_head} * group * shape.head_size;
      const AttentionTask task{.kv = span.kv,
                               .kv_head = kv_head,
                               .head_size = shape.head_size,
                               .query_heads = group,
                               .tokens = std::min(kAttentionTokens, span.tokens - token),
                               .first_position = span.first_position + token,
                               .window = shape.window,
                               .scale = shape.scale,
                               .q = q.data + row * q.stride + head,
                               .q_stride = q.stride,
                               .out = out.data + row * out.stride + head,
                               .out_stride = out.stride};
      kernels_.attention(&task, worker.scratch.data());
      return;
    }
  });
}

void Compute::SiluMul(const ConstRows& gate, const ConstRows& up, const Rows& out) const {
  RunRows(pool_, gate.tokens, gate.count, [&](uint32_t begin, uint32_t end) {
    for (size_t t = begin; t < end; ++t) {
      kernels_.silu_mul(gate.data + t * gate.stride, up.data + t * up.stride, gate.count, out.data + t * out.stride);
    }
  });
}

void Compute::AddScaled(const ConstRows& y, float scale, const Rows& x) const {
  RunRows(pool_, y.tokens, y.count, [&](uint32_t begin, uint32_t end) {
    for (size_t t = begin; t < end; ++t) {
      kernels_.add_scaled(y.data + t * y.stride, scale, y.count, x.data + t * x.stride);
    }
  });
}

}  // namespace bulkhead::kernels
