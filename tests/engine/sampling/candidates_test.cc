#include "engine/sampling/candidates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace bulkhead::engine {
namespace {

constexpr size_t kVocabulary = 151'936;

// Quantised to steps, so that there are many ties.
std::vector<float> RandomRow(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> logits(size);
  for (float& logit : logits) logit = static_cast<float>(static_cast<int>(random() % 4000)) / 128 - 16;
  return logits;
}

std::vector<int32_t> IdsOf(const Candidates& candidates) {
  std::vector<int32_t> ids;
  for (const Candidate& candidate : candidates.items()) ids.push_back(candidate.id);
  return ids;
}

std::vector<int32_t> BySort(const std::vector<float>& logits, size_t k) {
  std::vector<int32_t> ids(logits.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  ids.resize(std::min(k, ids.size()));
  return ids;
}

TEST(Candidates, TakesTheTopWithTiesByAscendingId) {
  for (const size_t size : {1U, 31U, 32U, 33U, 1000U, 5000U}) {
    const std::vector<float> logits = RandomRow(size, static_cast<uint32_t>(size));
    std::vector<Candidate> storage(size);
    for (const size_t k : {1U, 2U, 40U, 999U}) {
      Candidates top(storage);
      ASSERT_TRUE(top.TakeTop(logits, k));
      EXPECT_EQ(IdsOf(top), BySort(logits, k)) << size << " " << k;
      Candidates all(storage);
      ASSERT_TRUE(all.TakeAll(logits));
      all.TopK(k);
      if (k >= size) continue;
      EXPECT_EQ(IdsOf(all), BySort(logits, k)) << size << " " << k;
    }
  }
}

TEST(Candidates, GreedyIsTheLowestIdOfTheMaximum) {
  std::vector<float> logits(100, 1);
  logits[70] = logits[40] = logits[90] = 2;
  std::vector<Candidate> storage(100);
  Candidates candidates(storage);
  ASSERT_TRUE(candidates.TakeTop(logits, 1));
  EXPECT_EQ(candidates.items()[0].id, 40);
}

TEST(Candidates, TopPOfAWholeVocabularyEqualsThatOfASortedOne) {
  const std::vector<float> logits = RandomRow(kVocabulary, 7);
  std::vector<Candidate> storage(kVocabulary);
  for (const double p : {0.05, 0.5, 0.95, 0.9999}) {
    Candidates lazy(storage);
    ASSERT_TRUE(lazy.TakeAll(logits));
    lazy.TopP(p);
    const std::vector<int32_t> ids = IdsOf(lazy);
    EXPECT_EQ(ids, BySort(logits, ids.size()));
    double total = 0;
    double kept = 0;
    for (const float logit : logits) total += std::exp(double{logit} - 16);
    for (const int32_t id : ids) kept += std::exp(double{logits[static_cast<size_t>(id)]} - 16);
    EXPECT_GE(kept / total, p - 1e-9);
    EXPECT_LT((kept - std::exp(double{logits[static_cast<size_t>(ids.back())]} - 16)) / total, p + 1e-9);
  }
}

TEST(Candidates, PickGivesTheSameTokenWhetherSortedOrNot) {
  const std::vector<float> logits = RandomRow(3000, 3);
  std::vector<Candidate> lazy_storage(3000);
  std::vector<Candidate> sorted_storage(3000);
  for (int i = 0; i < 100; ++i) {
    Candidates lazy(lazy_storage);
    Candidates sorted(sorted_storage);
    ASSERT_TRUE(lazy.TakeAll(logits));
    ASSERT_TRUE(sorted.TakeTop(logits, 3000));
    EXPECT_EQ(lazy.Pick(i / 100.0), sorted.Pick(i / 100.0)) << i;
  }
}

TEST(Candidates, PickReachesTheFirstAndTheLast) {
  const std::vector<float> logits = {0, 0, 0, -INFINITY};
  std::vector<Candidate> storage(4);
  Candidates candidates(storage);
  ASSERT_TRUE(candidates.TakeAll(logits));
  EXPECT_EQ(candidates.Pick(0), 0);
  EXPECT_EQ(candidates.Pick(0.34), 1);
  EXPECT_EQ(candidates.Pick(std::nextafter(1.0, 0.0)), 2);
}

TEST(Candidates, RowsThatAreNoNumbersAreRefused) {
  std::vector<Candidate> storage(40);
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()};
  for (const float value : bad) {
    for (const size_t at : {0U, 17U, 39U}) {
      std::vector<float> logits(40, 1);
      logits[at] = value;
      EXPECT_FALSE(Candidates(storage).TakeAll(logits));
      EXPECT_FALSE(Candidates(storage).TakeTop(logits, 3));
    }
  }
  const std::vector<float> nothing(40, -INFINITY);
  EXPECT_FALSE(Candidates(storage).TakeAll(nothing));
  EXPECT_FALSE(Candidates(storage).TakeTop(nothing, 3));
}

}  // namespace
}  // namespace bulkhead::engine
