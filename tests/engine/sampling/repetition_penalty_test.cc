#include "engine/sampling/repetition_penalty.h"

#include <gtest/gtest.h>

#include <vector>

namespace bulkhead::engine {
namespace {

std::vector<float> Applied(const RepetitionPenalty& penalty, std::vector<float> logits) {
  std::vector<Candidate> changed;
  penalty.Apply(logits, changed);
  return logits;
}

TEST(RepetitionPenalty, DividesPositiveAndMultipliesOtherLogitsOnce) {
  RepetitionPenalty penalty(2, 8);
  penalty.Accept(std::vector<int32_t>{0, 1, 0, 0});
  EXPECT_EQ(Applied(penalty, {4, -4, 4}), (std::vector<float>{2, -8, 4}));
}

TEST(RepetitionPenalty, ForgetsWhatLeavesTheWindow) {
  RepetitionPenalty penalty(2, 2);
  penalty.Accept(std::vector<int32_t>{0, 1, 1});
  EXPECT_EQ(Applied(penalty, {4, 4, 4}), (std::vector<float>{4, 2, 4}));
  penalty.Accept(std::vector<int32_t>{2});
  EXPECT_EQ(Applied(penalty, {4, 4, 4}), (std::vector<float>{4, 2, 2}));
  penalty.Accept(std::vector<int32_t>{2});
  EXPECT_EQ(Applied(penalty, {4, 4, 4}), (std::vector<float>{4, 4, 2}));
}

TEST(RepetitionPenalty, IsTheSameHoweverTheHistoryArrives) {
  const std::vector<int32_t> history = {5, 3, 3, 1, 0, 2, 5, 5, 4};
  RepetitionPenalty whole(1.5f, 4);
  whole.Accept(history);
  RepetitionPenalty single(1.5f, 4);
  for (const int32_t id : history) single.Accept({&id, 1});
  const std::vector<float> logits = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(Applied(whole, logits), Applied(single, logits));
}

TEST(RepetitionPenalty, PassesOverIdsOutsideTheRow) {
  RepetitionPenalty penalty(2, 8);
  penalty.Accept(std::vector<int32_t>{-1, 3, 1'000'000});
  EXPECT_EQ(Applied(penalty, {4, 4, 4}), (std::vector<float>{4, 4, 4}));
}

}  // namespace
}  // namespace bulkhead::engine
