// The tiers this machine can test against the reference, as a parameter of GoogleTest suites.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/cpu_features.h"
#include "kernels/kernels.h"

namespace bulkhead::kernels::testing {

struct TierUnderTest {
  std::string name;
  const KernelTable* table;  // nullptr where this processor cannot run it
};

// Every fast tier; plus AVX-512's arithmetic emulated on AVX2.
std::vector<TierUnderTest> TiersUnderTest();

// Skips the tests of a tier that cannot run here.
class TierTest : public ::testing::TestWithParam<TierUnderTest> {
 protected:
  void SetUp() override {
    if (GetParam().table == nullptr) {
      GTEST_SKIP() << (GetParam().name == "avx512" ? "[no-avx512]" : "[no-avx2]")
                   << " this processor cannot run the tier";
    }
  }
  [[nodiscard]] const KernelTable& Tier() const { return *GetParam().table; }
};

// Bytes equal; else says where the first difference is.
::testing::AssertionResult SameBits(const std::vector<float>& expected, const std::vector<float>& actual);

}  // namespace bulkhead::kernels::testing

#define INSTANTIATE_TIERS(suite)                                                                              \
  INSTANTIATE_TEST_SUITE_P(Tiers, suite, ::testing::ValuesIn(::bulkhead::kernels::testing::TiersUnderTest()), \
                           [](const auto& info) { return info.param.name; })
