// The choice of a tier, and the words that explain it.
#include "kernels/dispatch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/tiers.h"

namespace bulkhead::kernels {
namespace {

using ::testing::HasSubstr;
using ::testing::StrEq;

constexpr CpuFeatures kOld{};
constexpr CpuFeatures kMiddle{.avx2 = true, .fma = true, .f16c = true};
constexpr CpuFeatures kNew{.avx2 = true,
                           .fma = true,
                           .f16c = true,
                           .avx512f = true,
                           .avx512bw = true,
                           .avx512dq = true,
                           .avx512vl = true,
                           .avx512vnni = true};

TEST(DispatchTest, TakesTheBestTierTheProcessorRuns) {
  EXPECT_THAT(ChooseTier(kOld, "").table->name, StrEq("reference"));
  EXPECT_THAT(ChooseTier(kMiddle, "").table->name, StrEq("avx2"));
  EXPECT_THAT(ChooseTier(kNew, "").table->name, StrEq("avx512"));
}

TEST(DispatchTest, SaysWhatABetterTierLacks) {
  EXPECT_THAT(ChooseTier(kOld, "").reason, HasSubstr("avx2 needs avx2 fma f16c, this processor has none"));
  EXPECT_THAT(ChooseTier(kMiddle, "").reason, HasSubstr("avx512 needs"));
  EXPECT_EQ(ChooseTier(kNew, "").reason, "");
}

TEST(DispatchTest, AMissingPartOfAVX512DemotesToAvx2) {
  CpuFeatures features = kNew;
  features.avx512vnni = false;
  EXPECT_THAT(ChooseTier(features, "").table->name, StrEq("avx2"));
}

TEST(DispatchTest, AWishIsFollowedAndNamed) {
  const TierChoice choice = ChooseTier(kNew, "reference");
  EXPECT_THAT(choice.table->name, StrEq("reference"));
  EXPECT_THAT(choice.reason, HasSubstr("BULKHEAD_KERNEL_TIER=reference"));
}

TEST(DispatchTest, AWishThatCannotRunFallsToTheBestThatCan) {
  const TierChoice choice = ChooseTier(kMiddle, "avx512");
  EXPECT_THAT(choice.table->name, StrEq("avx2"));
  EXPECT_THAT(choice.reason, HasSubstr("BULKHEAD_KERNEL_TIER=avx512"));
}

TEST(DispatchTest, AnUnknownWishIsReported) {
  const TierChoice choice = ChooseTier(kMiddle, "fast");
  EXPECT_THAT(choice.table->name, StrEq("avx2"));
  EXPECT_THAT(choice.reason, HasSubstr("fast is not a tier"));
}

TEST(DispatchTest, RunnableTiersStartWithTheReference) {
  EXPECT_EQ(RunnableTiers(kOld), std::vector<const KernelTable*>{&kReferenceKernels});
  EXPECT_EQ(RunnableTiers(kMiddle).size(), 2u);
  EXPECT_EQ(RunnableTiers(kNew).size(), 3u);
}

TEST(WeightTypeTest, UnknownNumbersAreNotFound) {
  EXPECT_EQ(FindWeightType(31), nullptr);
  EXPECT_EQ(FindWeightType(8)->type, WeightType::kQ8_0);
  EXPECT_EQ(RowBytes(WeightType::kQ8_0, 1024), 32u * 34);
  EXPECT_EQ(RowBytes(WeightType::kQ4_0, 1024), 32u * 18);
  EXPECT_EQ(RowBytes(WeightType::kQ4_K, 1024), 4u * 144);
  EXPECT_EQ(RowBytes(WeightType::kQ6_K, 1024), 4u * 210);
}

}  // namespace
}  // namespace bulkhead::kernels
