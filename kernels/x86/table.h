// Assembles an x86 tier's table. Included last by avx2.cc and avx512.cc, whose headers define BlockMatMul and formats.
#pragma once

#include "kernels/x86/attention.h"
#include "kernels/x86/float_matmul.h"
#include "kernels/x86/recurrent.h"
#include "kernels/x86/vector_math.h"

namespace bulkhead::kernels {
namespace {

inline void MatMul(const MatMulTask* task, uint32_t row_begin, uint32_t row_end, void* scratch, size_t scratch_bytes) {
  switch (task->weights.type) {
    case WeightType::kF32:
      return FloatMatMul<ReadF32>(*task, row_begin, row_end, scratch, scratch_bytes);
    case WeightType::kF16:
      return FloatMatMul<ReadF16>(*task, row_begin, row_end, scratch, scratch_bytes);
    case WeightType::kBF16:
      return FloatMatMul<ReadBf16>(*task, row_begin, row_end, scratch, scratch_bytes);
    case WeightType::kQ8_0:
      return BlockMatMul<Q8Blocks>(*task, row_begin, row_end, scratch, scratch_bytes);
    case WeightType::kQ4_0:
      return BlockMatMul<Q4Blocks>(*task, row_begin, row_end, scratch, scratch_bytes);
    case WeightType::kQ5_0:
      return BlockMatMul<Q5Blocks>(*task, row_begin, row_end, scratch, scratch_bytes);
    case WeightType::kQ4_K:
      return SuperMatMul<Q4KBlocks>(*task, row_begin, row_end, scratch, scratch_bytes);
    case WeightType::kQ6_K:
      return SuperMatMul<Q6KBlocks>(*task, row_begin, row_end, scratch, scratch_bytes);
  }
}

inline void Dequantise(WeightType type, const void* row, uint32_t cols, float* out) {
  const auto* bytes = static_cast<const uint8_t*>(row);
  switch (type) {
    case WeightType::kF32:
      return UnpackFloats<ReadF32>(bytes, cols, out);
    case WeightType::kF16:
      return UnpackFloats<ReadF16>(bytes, cols, out);
    case WeightType::kBF16:
      return UnpackFloats<ReadBf16>(bytes, cols, out);
    case WeightType::kQ8_0:
      return DequantiseBlocks<Q8Blocks>(bytes, cols, out);
    case WeightType::kQ4_0:
      return DequantiseBlocks<Q4Blocks>(bytes, cols, out);
    case WeightType::kQ5_0:
      return DequantiseBlocks<Q5Blocks>(bytes, cols, out);
    case WeightType::kQ4_K:
      return DequantiseSuper<Q4KBlocks>(bytes, cols, out);
    case WeightType::kQ6_K:
      return DequantiseSuper<Q6KBlocks>(bytes, cols, out);
  }
}

constexpr KernelTable MakeTable(const char* name) {
  return {.name = name,
          .quantise_q8 = QuantiseQ8,
          .matmul = MatMul,
          .dequantise = Dequantise,
          .rms_norm = RmsNorm,
          .rope = Rope,
          .attention = Attention,
          .silu_mul = SiluMul,
          .add_scaled = AddScaled,
          .exp = ExpRow,
          .softmax = Softmax,
          .dot = Dot,
          .store_kv = StoreKv,
          .convolve = Convolve,
          .scan = Scan,
          .delta_scan = DeltaScan};
}

}  // namespace
}  // namespace bulkhead::kernels
