// Weight rows times activations: every tier, type and shape gives the reference's bits, however the work is cut.
#include <gtest/gtest.h>

#include <cmath>

#include "data.h"
#include "kernels/tiers.h"
#include "tiers_under_test.h"

namespace bulkhead::kernels::testing {
namespace {

constexpr WeightType kTypes[] = {WeightType::kF32,  WeightType::kF16,  WeightType::kBF16, WeightType::kQ8_0,
                                 WeightType::kQ4_0, WeightType::kQ5_0, WeightType::kQ4_K, WeightType::kQ6_K};

// `cols`, or more where the type's blocks are longer.
uint32_t WholeBlocks(WeightType type, uint32_t cols) {
  const uint32_t block = InfoOf(type).block_weights;
  return (cols + block - 1) / block * block;
}

std::vector<float> Multiply(const KernelTable& kernels, WeightType type, const std::vector<uint8_t>& weights,
                            uint32_t rows, const Activations& x, size_t scratch_bytes, uint32_t rows_a_call) {
  Scratch scratch(scratch_bytes);
  std::vector<float> out(size_t{x.tokens} * rows, -7.0f);
  const MatMulTask task{.weights = {weights.data(), RowBytes(type, x.cols), rows, x.cols, type},
                        .x = x,
                        .out = out.data(),
                        .out_stride = rows};
  for (uint32_t r = 0; r < rows; r += rows_a_call) {
    kernels.matmul(&task, r, std::min(r + rows_a_call, rows), scratch.data(), scratch_bytes);
  }
  return out;
}

class MatMulTest : public TierTest {
 protected:
  void ExpectSame(WeightType type, uint32_t rows, uint32_t wanted_cols, uint32_t tokens, uint64_t seed) {
    const uint32_t cols = WholeBlocks(type, wanted_cols);
    SCOPED_TRACE(std::string(InfoOf(type).name) + " rows " + std::to_string(rows) + " cols " + std::to_string(cols) +
                 " tokens " + std::to_string(tokens));
    Random random(seed);
    const auto weights = MakeWeights(random, type, rows, cols);
    const auto x = MakeActivations(kReferenceKernels, random.Values(size_t{tokens} * cols), tokens, cols);
    const auto expected = Multiply(kReferenceKernels, type, weights, rows, x.view, 0, rows);
    const size_t scratch = MatMulScratchBytes(cols);
    EXPECT_TRUE(SameBits(expected, Multiply(Tier(), type, weights, rows, x.view, scratch, rows)));
    EXPECT_TRUE(SameBits(expected, Multiply(Tier(), type, weights, rows, x.view, scratch, 16))) << "16 rows a call";
    EXPECT_TRUE(SameBits(expected, Multiply(Tier(), type, weights, rows, x.view, 0, rows))) << "without scratch";
  }
};

TEST_P(MatMulTest, EveryTokenCountEqualsTheReference) {
  for (WeightType type : kTypes) {
    for (uint32_t tokens = 1; tokens <= 17; ++tokens) ExpectSame(type, 33, 288, tokens, 100 + tokens);
    ExpectSame(type, 48, 256, 64, 7);
  }
}

TEST_P(MatMulTest, EveryRowCountEqualsTheReference) {
  for (WeightType type : kTypes) {
    for (uint32_t rows : {1, 2, 3, 15, 16, 17, 31, 47}) {
      for (uint32_t tokens : {1, 2, 5}) ExpectSame(type, rows, 160, tokens, rows);
    }
  }
}

TEST_P(MatMulTest, EveryWidthEqualsTheReference) {
  for (WeightType type : kTypes) {
    for (uint32_t cols : {32, 64, 96, 128, 224, 1024, 1056, 3072}) {
      for (uint32_t tokens : {1, 3, 9}) ExpectSame(type, 19, cols, tokens, cols);
    }
  }
}

TEST_P(MatMulTest, FloatRowsNeedNoMultipleOf16) {
  for (WeightType type : {WeightType::kF32, WeightType::kF16, WeightType::kBF16}) {
    for (uint32_t cols : {1, 15, 17, 172}) {
      for (uint32_t tokens : {1, 4, 11}) ExpectSame(type, 9, cols, tokens, cols);
    }
  }
}

TEST_P(MatMulTest, ExtremeBlocksDoNotSaturate) {
  // Every weight at its largest magnitude, -128 included, against activations of +-127.
  constexpr uint32_t kRows = 34, kCols = 256;
  for (WeightType type :
       {WeightType::kQ8_0, WeightType::kQ4_0, WeightType::kQ5_0, WeightType::kQ4_K, WeightType::kQ6_K}) {
    for (int weight_byte : {0x80, 0x7f, 0x00, 0xff}) {
      for (float sign : {1.0f, -1.0f}) {
        for (uint32_t tokens : {1, 2, 3, 4, 8}) {
          Random random(1);
          auto weights = MakeWeights(random, type, kRows, kCols);
          const uint32_t bytes = InfoOf(type).block_bytes;
          for (size_t i = 0; i < weights.size(); ++i) {
            if (!HoldsHalf(type, i % bytes)) weights[i] = static_cast<uint8_t>(weight_byte);
          }
          const std::vector<float> x(size_t{tokens} * kCols, sign * 3.0f);
          const auto activations = MakeActivations(kReferenceKernels, x, tokens, kCols);
          EXPECT_TRUE(
              SameBits(Multiply(kReferenceKernels, type, weights, kRows, activations.view, 0, kRows),
                       Multiply(Tier(), type, weights, kRows, activations.view, MatMulScratchBytes(kCols), kRows)));
        }
      }
    }
  }
}

TEST_P(MatMulTest, ATokensResultDoesNotDependOnItsNeighbours) {
  constexpr uint32_t kRows = 32, kCols = 256, kTokens = 13;
  for (WeightType type : kTypes) {
    Random random(5);
    const auto weights = MakeWeights(random, type, kRows, kCols);
    const auto values = random.Values(size_t{kTokens} * kCols);
    const auto together = MakeActivations(Tier(), values, kTokens, kCols);
    const auto all = Multiply(Tier(), type, weights, kRows, together.view, MatMulScratchBytes(kCols), kRows);
    for (uint32_t t = 0; t < kTokens; ++t) {
      const std::vector<float> one(values.begin() + t * kCols, values.begin() + (t + 1) * kCols);
      const auto alone = MakeActivations(Tier(), one, 1, kCols);
      const std::vector<float> expected(all.begin() + t * kRows, all.begin() + (t + 1) * kRows);
      EXPECT_TRUE(
          SameBits(expected, Multiply(Tier(), type, weights, kRows, alone.view, MatMulScratchBytes(kCols), kRows)));
    }
  }
}

INSTANTIATE_TIERS(MatMulTest);

TEST(ReferenceMatMulTest, IsCloseToDoubleArithmetic) {
  constexpr uint32_t kRows = 20, kCols = 1024;
  for (WeightType type : kTypes) {
    Random random(9);
    const auto weights = MakeWeights(random, type, kRows, kCols);
    const auto x = MakeActivations(kReferenceKernels, random.Normals(kCols, 1.0f), 1, kCols);
    const auto out = Multiply(kReferenceKernels, type, weights, kRows, x.view, 0, kRows);
    const bool quantised = InfoOf(type).activation == ActivationFormat::kQ8Group32;
    for (uint32_t r = 0; r < kRows; ++r) {
      std::vector<float> row(kCols);
      kReferenceKernels.dequantise(type, weights.data() + r * RowBytes(type, kCols), kCols, row.data());
      double exact = 0, magnitude = 0;
      for (uint32_t k = 0; k < kCols; ++k) {
        const double a = quantised ? double{x.scale[k / 32]} * x.q8[k] : double{x.f32[k]};
        exact += a * row[k];
        magnitude += std::fabs(a * row[k]);
      }
      EXPECT_NEAR(out[r], exact, magnitude * 1e-6) << InfoOf(type).name << " row " << r;
    }
  }
}

}  // namespace
}  // namespace bulkhead::kernels::testing
