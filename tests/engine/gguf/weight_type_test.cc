#include "engine/gguf/weight_type.h"

#include <gtest/gtest.h>

#include <limits>

namespace bulkhead::engine {
namespace {

TEST(WeightType, TakesBytesByWholeBlocks) {
  EXPECT_EQ(BytesOf(WeightType::kF32, 3), 12U);
  EXPECT_EQ(BytesOf(WeightType::kQ8_0, 64), 68U);
  EXPECT_EQ(BytesOf(WeightType::kQ4_0, 64), 36U);
  EXPECT_EQ(BytesOf(WeightType::kQ6_K, 512), 420U);
  EXPECT_EQ(BytesOf(WeightType::kQ8_0, 33), std::nullopt);
}

TEST(WeightType, AnswersNothingWhereBytesOverflow) {
  EXPECT_EQ(BytesOf(WeightType::kF32, std::numeric_limits<uint64_t>::max()), std::nullopt);
}

TEST(WeightType, KnowsEveryTypeOfTheFormatByNumberAndName) {
  constexpr uint32_t kNumbers[] = {0, 1, 2, 3, 6, 7, 8, 10, 11, 12, 13, 14, 20, 23, 30, 34, 35, 39, 41, 42, 142, 143};
  for (const uint32_t number : kNumbers) {
    const WeightTypeInfo* info = FindWeightType(number);
    ASSERT_NE(info, nullptr) << number;
    EXPECT_EQ(static_cast<uint32_t>(info->type), number);
    EXPECT_FALSE(info->name.empty());
  }
  EXPECT_EQ(FindWeightType(9), nullptr);
  EXPECT_EQ(FindWeightType(1000), nullptr);
}

}  // namespace
}  // namespace bulkhead::engine
