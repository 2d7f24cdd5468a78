#include "engine/sampling/draw.h"

#include <gtest/gtest.h>

#include <set>

namespace bulkhead::engine {
namespace {

// Known answers of Random123's kat_vectors for philox4x32-10.
TEST(Draw, PhiloxEqualsItsAuthorsKnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Draw, EveryPartOfTheKeyCounts) {
  std::set<double> draws;
  const DrawKey key{.seed = 1, .position = 2, .choice = 3, .stream = 4};
  draws.insert(Draw(key));
  draws.insert(Draw({.seed = 2, .position = 2, .choice = 3, .stream = 4}));
  draws.insert(Draw({.seed = 1ULL << 32, .position = 2, .choice = 3, .stream = 4}));
  draws.insert(Draw({.seed = 1, .position = 3, .choice = 3, .stream = 4}));
  draws.insert(Draw({.seed = 1, .position = 2ULL << 32, .choice = 3, .stream = 4}));
  draws.insert(Draw({.seed = 1, .position = 2, .choice = 4, .stream = 4}));
  draws.insert(Draw({.seed = 1, .position = 2, .choice = 3, .stream = 5}));
  EXPECT_EQ(draws.size(), 7U);
  EXPECT_EQ(Draw(key), Draw(key));
}

TEST(Draw, IsUniform) {
  constexpr int kDraws = 20'000;
  constexpr int kBins = 64;
  int counts[kBins] = {};
  for (int i = 0; i < kDraws; ++i) {
    const double u = Draw({.seed = 42, .position = static_cast<uint64_t>(i), .choice = 0, .stream = 0});
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    ++counts[static_cast<int>(u * kBins)];
  }
  const double expected = double{kDraws} / kBins;
  double chi_square = 0;
  for (const int count : counts) chi_square += (count - expected) * (count - expected) / expected;
  // 63 degrees of freedom: 110 is exceeded once in 4,000.
  EXPECT_LT(chi_square, 110);
}

}  // namespace
}  // namespace bulkhead::engine
