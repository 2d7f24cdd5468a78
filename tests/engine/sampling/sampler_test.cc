#include "engine/sampling/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace bulkhead::engine {
namespace {

int32_t Chosen(Sampler& sampler, std::vector<float> logits, uint64_t position) {
  SamplerScratch scratch(static_cast<uint32_t>(logits.size()));
  const auto token = sampler.Sample(logits, position, scratch);
  EXPECT_TRUE(token.ok()) << Message(token.status());
  return token.ok() ? token->id : -1;
}

SamplingParams Plain() {
  SamplingParams params;
  params.temperature = 1;
  params.top_k = 0;
  params.top_p = 1;
  params.min_p = 0;
  params.seed = 9;
  return params;
}

TEST(Sampler, TwentyThousandDrawsFollowTheDistribution) {
  const std::vector<double> probabilities = {0.4, 0.25, 0.15, 0.1, 0.05, 0.03, 0.02};
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  for (const int32_t top_k : {0, 40, 3}) {
    SamplingParams params = Plain();
    params.top_k = top_k;
    Sampler sampler(params, {});
    std::vector<int> counts(probabilities.size());
    constexpr int kDraws = 20'000;
    SamplerScratch scratch(static_cast<uint32_t>(logits.size()));
    for (uint64_t position = 0; position < kDraws; ++position) {
      const auto token = sampler.Sample(logits, position, scratch);
      ASSERT_TRUE(token.ok());
      ++counts[static_cast<size_t>(token->id)];
    }
    const size_t kept = top_k == 3 ? 3 : probabilities.size();
    double mass = 0;
    for (size_t i = 0; i < kept; ++i) mass += probabilities[i];
    double chi_square = 0;
    for (size_t i = 0; i < kept; ++i) {
      const double expected = kDraws * probabilities[i] / mass;
      chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    for (size_t i = kept; i < counts.size(); ++i) EXPECT_EQ(counts[i], 0);
    // 6 degrees of freedom: 25 is exceeded three times in 10,000.
    EXPECT_LT(chi_square, 25) << top_k;
  }
}

TEST(Sampler, DependsOnKeyAndRowAlone) {
  std::mt19937 random(1);
  std::vector<float> logits(1000);
  for (float& logit : logits) logit = static_cast<float>(random() % 1000) / 100;
  SamplingParams params = Plain();
  Sampler first(params, {});
  std::vector<int32_t> forward;
  std::vector<int32_t> backward(50);
  for (uint64_t p = 0; p < 50; ++p) forward.push_back(Chosen(first, logits, p));
  Sampler second(params, {});
  for (uint64_t p = 50; p-- > 0;) backward[p] = Chosen(second, logits, p);
  EXPECT_EQ(forward, backward);
  params.seed = 10;
  Sampler other_seed(params, {});
  Sampler other_choice(Plain(), {}, 1);
  std::vector<int32_t> with_seed;
  std::vector<int32_t> with_choice;
  for (uint64_t p = 0; p < 50; ++p) {
    with_seed.push_back(Chosen(other_seed, logits, p));
    with_choice.push_back(Chosen(other_choice, logits, p));
  }
  EXPECT_NE(forward, with_seed);
  EXPECT_NE(forward, with_choice);
}

TEST(Sampler, TemperatureZeroIsTheLowestIdOfTheMaximum) {
  SamplingParams params;
  params.temperature = 0;
  Sampler sampler(params, {});
  EXPECT_EQ(Chosen(sampler, {1, 5, 2, 5}, 0), 1);
  EXPECT_EQ(Chosen(sampler, {7}, 0), 0);
}

TEST(Sampler, NeverChoosesBannedTokens) {
  SamplingParams params;
  params.temperature = 0;
  const std::vector<int32_t> banned = {1, 99};
  Sampler sampler(params, banned);
  EXPECT_EQ(Chosen(sampler, {1, 5, 2, 4}, 0), 3);
}

TEST(Sampler, PenalisesWhatItAcceptedAndPutsTheRowBack) {
  SamplingParams params;
  params.temperature = 0;
  params.repeat_penalty = 2;
  Sampler sampler(params, std::vector<int32_t>{2});
  std::vector<float> logits = {4, 3, 9};
  const std::vector<float> before = logits;
  SamplerScratch scratch(3);
  EXPECT_EQ(sampler.Sample(logits, 0, scratch)->id, 0);
  sampler.Accept(0);
  EXPECT_EQ(sampler.Sample(logits, 1, scratch)->id, 1);
  EXPECT_EQ(logits, before);
}

TEST(Sampler, TellsTheLogProbabilityUnderTemperatureAlone) {
  SamplingParams params;
  params.logprobs = true;
  params.temperature = 0.5f;
  params.top_k = 1;
  Sampler sampler(params, {});
  std::vector<float> logits = {1, 2, 0};
  SamplerScratch scratch(3);
  const double sum = std::exp(2.0) + std::exp(4.0) + std::exp(0.0);
  EXPECT_NEAR(sampler.Sample(logits, 0, scratch)->logprob, std::log(std::exp(4.0) / sum), 1e-6);
  params.temperature = 0;
  Sampler greedy(params, {});
  const double raw = std::exp(1.0) + std::exp(2.0) + std::exp(0.0);
  EXPECT_NEAR(greedy.Sample(logits, 0, scratch)->logprob, std::log(std::exp(2.0) / raw), 1e-6);
}

TEST(Sampler, RefusesRowsThatAreNoNumbers) {
  Sampler sampler(SamplingParams(), {});
  SamplerScratch scratch(3);
  std::vector<float> nan = {1, std::numeric_limits<float>::quiet_NaN(), 2};
  EXPECT_EQ(ReasonOf(sampler.Sample(nan, 3, scratch).status()), Reason::kInternal);
  std::vector<float> long_row(4, 1);
  EXPECT_EQ(ReasonOf(sampler.Sample(long_row, 3, scratch).status()), Reason::kInternal);
  Sampler all_banned(SamplingParams(), std::vector<int32_t>{0, 1, 2});
  std::vector<float> row(3, 1);
  EXPECT_EQ(ReasonOf(all_banned.Sample(row, 3, scratch).status()), Reason::kInternal);
}

}  // namespace
}  // namespace bulkhead::engine
