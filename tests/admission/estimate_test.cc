#include "admission/estimate.h"

#include <gtest/gtest.h>

#include <limits>

#include "admission/learned.h"

namespace bulkhead::admission {
namespace {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

ModelFacts Facts() {
  ModelFacts facts;
  facts.model = "m";
  facts.file = {1, 2, 3, 4};
  facts.weight_bytes = 1000;
  facts.kv_bytes_per_token = 10;
  facts.recurrent_bytes_per_sequence = 7;
  facts.arena_bytes = 100;
  facts.overhead_bytes = 50;
  facts.trained_context = 4096;
  return facts;
}

TEST(Estimate, IsTheSumOfItsParts) {
  const auto charge = EstimateCharge(Facts(), {512, 3});
  ASSERT_TRUE(charge.has_value());
  EXPECT_EQ(charge->kv, 512u * 3 * 10);
  EXPECT_EQ(charge->recurrent, 21u);
  EXPECT_EQ(charge->Private(), 15360u + 21 + 100 + 50);
  EXPECT_EQ(charge->Total(), charge->Private() + 1000);
}

TEST(Estimate, ChargesWholePages) {
  EXPECT_EQ(EstimateCharge(Facts(), {1, 1})->kv, 256u * 10);
  EXPECT_EQ(EstimateCharge(Facts(), {257, 1})->kv, 512u * 10);
}

TEST(Estimate, IsCorrectedUpwardByWhatWasLearnedNeverDownward) {
  const uint64_t own = EstimateCharge(Facts(), {512, 1})->Private();
  EXPECT_EQ(EstimateCharge(Facts(), {512, 1}, own + 5)->Private(), own + 5);
  EXPECT_EQ(EstimateCharge(Facts(), {512, 1}, own - 5)->Private(), own);
}

TEST(Estimate, KeepsMoreThanTwoGibibytesOfKv) {
  ModelFacts facts = Facts();
  facts.kv_bytes_per_token = 128 * 1024;
  EXPECT_EQ(EstimateCharge(facts, {131072, 4})->kv, uint64_t{131072} * 4 * 128 * 1024);
}

TEST(Estimate, SaysSoWhereAnyTermOverflows) {
  ModelFacts kv = Facts();
  kv.kv_bytes_per_token = kMax;
  EXPECT_FALSE(EstimateCharge(kv, {512, 1}).has_value());
  ModelFacts recurrent = Facts();
  recurrent.recurrent_bytes_per_sequence = kMax;
  EXPECT_FALSE(EstimateCharge(recurrent, {512, 2}).has_value());
  ModelFacts arena = Facts();
  arena.arena_bytes = kMax;
  EXPECT_FALSE(EstimateCharge(arena, {512, 1}).has_value());
  ModelFacts weights = Facts();
  weights.weight_bytes = kMax;
  EXPECT_FALSE(EstimateCharge(weights, {512, 1}).has_value());
  EXPECT_FALSE(EstimateCharge(Facts(), {512, 1}, kMax).has_value());
  constexpr uint32_t kAll = std::numeric_limits<uint32_t>::max();
  EXPECT_FALSE(EstimateCharge(Facts(), {kAll, kAll}).has_value());
}

TEST(Estimate, DefaultContextIsTheTrainedOneUpToEightThousand) {
  ModelFacts facts = Facts();
  EXPECT_EQ(DefaultContext(facts), 4096u);
  facts.trained_context = 131072;
  EXPECT_EQ(DefaultContext(facts), 8192u);
  facts.trained_context = 0;
  EXPECT_EQ(DefaultContext(facts), 8192u);
}

TEST(Estimate, LargestContextFitsAndOnePageMoreDoesNot) {
  ModelFacts facts = Facts();
  facts.trained_context = 0;
  const uint64_t budget = 50'000;
  const uint32_t largest = LargestContext(facts, budget);
  ASSERT_GT(largest, 0u);
  EXPECT_LE(EstimateCharge(facts, {largest, 1})->Total(), budget);
  EXPECT_GT(EstimateCharge(facts, {largest + kPositionsPerPage, 1})->Total(), budget);
  EXPECT_EQ(LargestContext(facts, 1000), 0u);
  facts.trained_context = 300;
  EXPECT_EQ(LargestContext(facts, kMax), 300u);
}

TEST(Estimate, AfterOutOfMemoryIsAnEighthMoreAndSaturates) {
  EXPECT_EQ(AfterOom(800), 900u);
  EXPECT_EQ(AfterOom(kMax), kMax);
}

TEST(LearnedPeaks, KeepTheWorstPerFileAndShape) {
  LearnedPeaks learned;
  const FileIdentity file{1, 2, 3, 4};
  learned.Measured(file, {512, 1}, 70);
  learned.Measured(file, {512, 1}, 60);
  EXPECT_EQ(learned.Peak(file, {512, 1}), 70u);
  EXPECT_EQ(learned.Peak(file, {512, 2}), 0u);
  EXPECT_EQ(learned.Peak({1, 2, 3, 5}, {512, 1}), 0u) << "a file written anew is another file";
}

TEST(LearnedPeaks, AnOutOfMemoryLoadIsTriedAgainTwiceAndTheCountEndsWithALoad) {
  LearnedPeaks learned;
  const FileIdentity file{1, 2, 3, 4};
  EXPECT_TRUE(learned.RanOutOfMemory(file, {512, 1}, 80));
  EXPECT_EQ(learned.Peak(file, {512, 1}), 90u);
  EXPECT_TRUE(learned.RanOutOfMemory(file, {512, 1}, 90));
  EXPECT_FALSE(learned.RanOutOfMemory(file, {512, 1}, 100));
  learned.Served(file, {512, 1});
  EXPECT_TRUE(learned.RanOutOfMemory(file, {512, 1}, 100));
}

TEST(LearnedPeaks, SurviveARestart) {
  LearnedPeaks before;
  before.Measured({1, 2, 3, 4}, {512, 4}, 70);
  LearnedPeaks after;
  after.Import(before.Export());
  EXPECT_EQ(after.Peak({1, 2, 3, 4}, {512, 4}), 70u);
}

}  // namespace
}  // namespace bulkhead::admission
