#include "tiers_under_test.h"

#include <cstring>

#include "kernels/dispatch.h"
#include "kernels/tiers.h"

namespace bulkhead::kernels {
extern const KernelTable kPortableAvx512Kernels;  // avx512_portable.cc
}

namespace bulkhead::kernels::testing {

std::vector<TierUnderTest> TiersUnderTest() {
  const auto if_runnable = [](const char* name) -> const KernelTable* {
    for (const KernelTable* table : RunnableTiers(DetectCpuFeatures())) {
      if (std::strcmp(table->name, name) == 0) return table;
    }
    return nullptr;
  };
  const KernelTable* avx2 = if_runnable("avx2");
  return {{"avx2", avx2},
          {"avx512", if_runnable("avx512")},
          {"avx512_emulated", avx2 == nullptr ? nullptr : &kPortableAvx512Kernels}};
}

::testing::AssertionResult SameBits(const std::vector<float>& expected, const std::vector<float>& actual) {
  if (expected.size() != actual.size()) return ::testing::AssertionFailure() << "sizes differ";
  if (std::memcmp(expected.data(), actual.data(), expected.size() * sizeof(float)) == 0) {
    return ::testing::AssertionSuccess();
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::memcmp(&expected[i], &actual[i], sizeof(float)) != 0) {
      return ::testing::AssertionFailure() << "element " << i << ": expected " << expected[i] << ", got " << actual[i];
    }
  }
  return ::testing::AssertionFailure() << "bits differ";
}

}  // namespace bulkhead::kernels::testing
