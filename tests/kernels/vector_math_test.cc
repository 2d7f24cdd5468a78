// Operations along a row: equal to the reference bit by bit at every length, and close to double arithmetic.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "data.h"
#include "kernels/tiers.h"
#include "tiers_under_test.h"

namespace bulkhead::kernels::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr uint32_t kLengths[] = {1, 2, 7, 15, 16, 17, 31, 32, 64, 100, 128, 1000, 1024};

class VectorMathTest : public TierTest {};

TEST_P(VectorMathTest, QuantisationEqualsTheReference) {
  Random random(1);
  auto values = random.Values(32 * 400);
  for (int i = 0; i < 32; ++i) values[i] = 0.0f;                                // a group of nothing
  for (int i = 32; i < 64; ++i) values[i] = random.Normal() * 0x1p-140f;        // too small to scale
  values[70] = kInfinity;                                                       // a poisoned group
  for (int i = 96; i < 128; ++i) values[i] = std::ldexp(1.0f, i - 100) * 2.5f;  // ties
  values[130] = std::numeric_limits<float>::max();
  const auto expected = MakeActivations(kReferenceKernels, values, 1, values.size());
  const auto actual = MakeActivations(Tier(), values, 1, values.size());
  EXPECT_EQ(expected.q8, actual.q8);
  EXPECT_EQ(expected.sum, actual.sum);
  EXPECT_TRUE(SameBits(expected.scale, actual.scale));
}

TEST_P(VectorMathTest, DequantisationEqualsTheReference) {
  for (WeightType type : {WeightType::kF32, WeightType::kF16, WeightType::kBF16, WeightType::kQ8_0, WeightType::kQ4_0,
                          WeightType::kQ5_0, WeightType::kQ4_K, WeightType::kQ6_K}) {
    for (uint32_t cols : {32, 96, 1024}) {
      if (cols % InfoOf(type).block_weights != 0) continue;
      Random random(cols);
      const auto row = MakeWeights(random, type, 1, cols);
      std::vector<float> expected(cols), actual(cols);
      kReferenceKernels.dequantise(type, row.data(), cols, expected.data());
      Tier().dequantise(type, row.data(), cols, actual.data());
      EXPECT_TRUE(SameBits(expected, actual)) << InfoOf(type).name;
    }
  }
}

TEST_P(VectorMathTest, EveryHalfConvertsLikeTheReference) {
  std::vector<uint16_t> halves(65536);
  for (uint32_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> expected(halves.size()), actual(halves.size());
  kReferenceKernels.dequantise(WeightType::kF16, halves.data(), halves.size(), expected.data());
  Tier().dequantise(WeightType::kF16, halves.data(), halves.size(), actual.data());
  EXPECT_TRUE(SameBits(expected, actual));
}

TEST_P(VectorMathTest, FloatsRoundToHalvesLikeTheReference) {
  // Every half's neighbourhood: the half itself, the middles to its neighbours, and a bit to each side of those.
  std::vector<float> values;
  for (uint32_t i = 0; i < 65536; ++i) {
    const float half = HalfToFloat(static_cast<uint16_t>(i));
    const float next = HalfToFloat(static_cast<uint16_t>(i + 1));
    const float middle = half + (next - half) / 2;
    for (float value : {half, middle, std::nextafter(middle, kInfinity), std::nextafter(middle, -kInfinity)}) {
      if (!std::isnan(value)) values.push_back(value);
    }
  }
  for (float value : {65519.0f, 65520.0f, 1e6f, 1e38f, 0x1p-149f, 0x1p-25f, 0x1.1p-25f}) values.push_back(value);
  std::vector<uint16_t> expected(values.size()), actual(values.size());
  kReferenceKernels.store_kv(values.data(), values.size(), KvType::kF16, expected.data());
  Tier().store_kv(values.data(), values.size(), KvType::kF16, actual.data());
  EXPECT_EQ(expected, actual);
}

TEST_P(VectorMathTest, RowOperationsEqualTheReferenceAtEveryLength) {
  for (uint32_t count : kLengths) {
    SCOPED_TRACE(count);
    Random random(count);
    const auto x = random.Values(count), y = random.Values(count);
    const KernelTable& reference = kReferenceKernels;
    auto compare = [&](const char* what, auto&& run) {
      std::vector<float> expected(count, 9.0f), actual(count, 9.0f);
      run(reference, expected.data());
      run(Tier(), actual.data());
      EXPECT_TRUE(SameBits(expected, actual)) << what;
    };
    compare("rms_norm", [&](const KernelTable& k, float* out) { k.rms_norm(x.data(), y.data(), 1e-6f, count, out); });
    compare("rms_norm without weight",
            [&](const KernelTable& k, float* out) { k.rms_norm(x.data(), nullptr, 1e-6f, count, out); });
    compare("silu_mul", [&](const KernelTable& k, float* out) { k.silu_mul(x.data(), y.data(), count, out); });
    compare("add_scaled", [&](const KernelTable& k, float* out) { k.add_scaled(y.data(), 0.37f, count, out); });
    compare("exp", [&](const KernelTable& k, float* out) { k.exp(x.data(), count, out); });
    compare("softmax", [&](const KernelTable& k, float* out) { k.softmax(x.data(), 0.8f, count, out); });
    compare("store_kv", [&](const KernelTable& k, float* out) { k.store_kv(x.data(), count, KvType::kF32, out); });
    compare("dot", [&](const KernelTable& k, float* out) { out[0] = k.dot(x.data(), y.data(), count); });
  }
}

TEST_P(VectorMathTest, RopeEqualsTheReference) {
  for (uint32_t rotated : {2, 6, 16, 30, 32, 64, 96, 128}) {
    for (RopePairing pairing : {RopePairing::kNorm, RopePairing::kNeox}) {
      Random random(rotated);
      auto expected = random.Values(128);
      auto actual = expected;
      const auto cos_sin = random.Normals(rotated, 0.5f);
      kReferenceKernels.rope(expected.data(), rotated, pairing, cos_sin.data());
      Tier().rope(actual.data(), rotated, pairing, cos_sin.data());
      EXPECT_TRUE(SameBits(expected, actual)) << rotated;
    }
  }
}

TEST_P(VectorMathTest, ExpEqualsTheReferenceOverItsRange) {
  std::vector<float> x;
  for (float value = -110.0f; value < 100.0f; value += 0.00137f) x.push_back(value);
  for (float value : {-kInfinity, kInfinity, -86.0f, std::nextafter(-86.0f, -87.0f), 88.72f,
                      std::nextafter(88.72f, 89.0f), 0.0f, -0.0f, 0x1p-149f, -0x1p-149f, 1e38f, -1e38f}) {
    x.push_back(value);
  }
  std::vector<float> expected(x.size()), actual(x.size());
  kReferenceKernels.exp(x.data(), x.size(), expected.data());
  Tier().exp(x.data(), x.size(), actual.data());
  EXPECT_TRUE(SameBits(expected, actual));
}

INSTANTIATE_TIERS(VectorMathTest);

float ReferenceExp(float x) {
  float out;
  kReferenceKernels.exp(&x, 1, &out);
  return out;
}

TEST(ReferenceExpTest, IsWithinTwoUnitsInTheLastPlace) {
  double worst = 0;
  for (float x = -85.9f; x < 88.7f; x += 0.00071f) {
    const double exact = std::exp(double{x});
    const float rounded = static_cast<float>(exact);
    const double unit = std::nextafter(rounded, kInfinity) - rounded;
    worst = std::max(worst, std::fabs(ReferenceExp(x) - exact) / unit);
  }
  EXPECT_LE(worst, 2.0);
}

TEST(ReferenceExpTest, HasExactEnds) {
  EXPECT_EQ(ReferenceExp(0.0f), 1.0f);
  EXPECT_EQ(ReferenceExp(-kInfinity), 0.0f);
  EXPECT_EQ(ReferenceExp(kInfinity), kInfinity);
  EXPECT_EQ(ReferenceExp(-200.0f), 0.0f);
  EXPECT_EQ(ReferenceExp(200.0f), kInfinity);
  EXPECT_TRUE(std::isnan(ReferenceExp(std::nanf(""))));
}

TEST(ReferenceVectorMathTest, QuantisationErrsByHalfAStepAtMost) {
  Random random(3);
  const auto x = random.Normals(32 * 200, 2.0f);
  const auto q = MakeActivations(kReferenceKernels, x, 1, x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(x[i], q.scale[i / 32] * q.q8[i], q.scale[i / 32] * 0.5001f);
    EXPECT_GE(q.q8[i], -127);
  }
}

TEST(ReferenceVectorMathTest, APoisonedGroupPoisonsOnlyItsToken) {
  std::vector<float> x(64, 1.0f);
  x[3] = std::nanf("");
  const auto q = MakeActivations(kReferenceKernels, x, 2, 32);
  EXPECT_TRUE(std::isnan(q.scale[0]));
  EXPECT_EQ(q.q8[3], 0);
  EXPECT_EQ(q.q8[32], 127);
}

TEST(ReferenceVectorMathTest, SoftmaxSumsToOne) {
  Random random(4);
  const auto x = random.Normals(1000, 3.0f);
  std::vector<float> p(x.size());
  kReferenceKernels.softmax(x.data(), 1.0f, x.size(), p.data());
  double sum = 0;
  for (float value : p) sum += value;
  EXPECT_NEAR(sum, 1.0, 1e-5);
}

TEST(ReferenceVectorMathTest, HalvesRoundTrip) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const float value = HalfToFloat(static_cast<uint16_t>(i));
    if (std::isnan(value)) continue;
    ASSERT_EQ(FloatToHalf(value), i);
  }
}

}  // namespace
}  // namespace bulkhead::kernels::testing
