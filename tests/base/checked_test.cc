#include "base/checked.h"

#include <gtest/gtest.h>

#include <limits>

namespace bulkhead {
namespace {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

TEST(Checked, AddReportsOverflow) {
  EXPECT_EQ(CheckedAdd<uint64_t>(kMax - 1, 1), kMax);
  EXPECT_EQ(CheckedAdd<uint64_t>(kMax, 1), std::nullopt);
}

TEST(Checked, MulReportsOverflow) {
  EXPECT_EQ(CheckedMul<uint64_t>(1ULL << 32, 1ULL << 31), 1ULL << 63);
  EXPECT_EQ(CheckedMul<uint64_t>(1ULL << 32, 1ULL << 32), std::nullopt);
}

TEST(Checked, AlignUpReportsOverflow) {
  EXPECT_EQ(CheckedAlignUp(0, 32), 0U);
  EXPECT_EQ(CheckedAlignUp(33, 32), 64U);
  EXPECT_EQ(CheckedAlignUp(kMax - 30, 32), std::nullopt);
}

}  // namespace
}  // namespace bulkhead
