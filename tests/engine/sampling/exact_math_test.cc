#include "engine/sampling/exact_math.h"

#include <gtest/gtest.h>

#include <cmath>

namespace bulkhead::engine {
namespace {

TEST(ExactMath, ExpIsCloseToTheTrueValue) {
  for (double x = 0; x > -690; x -= 0.37) EXPECT_NEAR(Exp(x) / std::exp(x), 1, 1e-12) << x;
  EXPECT_EQ(Exp(0), 1);
  EXPECT_EQ(Exp(-1e9), 0);
  EXPECT_EQ(Exp(-INFINITY), 0);
}

TEST(ExactMath, LogIsCloseToTheTrueValue) {
  for (double x = 1e-30; x < 1e30; x *= 1.7)
    EXPECT_NEAR(Log(x), std::log(x), 1e-12 * (1 + std::fabs(std::log(x)))) << x;
  EXPECT_EQ(Log(1), 0);
}

}  // namespace
}  // namespace bulkhead::engine
