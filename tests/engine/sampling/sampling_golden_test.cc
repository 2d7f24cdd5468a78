#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "engine/sampling/candidates.h"
#include "engine/sampling/repetition_penalty.h"
#include "tests/engine/support/golden_files.h"

namespace bulkhead::engine {
namespace {

using nlohmann::json;

// The samplers this engine has; a chain with another, or with a count or presence penalty, is not for it.
bool IsOurs(const json& chain) {
  return std::all_of(chain.begin(), chain.end(), [](const json& step) {
    const auto name = step["sampler"].get<std::string>();
    if (name == "penalties") return step["frequency"].get<float>() == 0 && step["presence"].get<float>() == 0;
    return name == "top_k" || name == "top_p" || name == "min_p" || name == "temp";
  });
}

void Apply(const json& step, Candidates& candidates) {
  const auto name = step["sampler"].get<std::string>();
  if (name == "top_k" && step["k"].get<int>() > 0) candidates.TopK(step["k"].get<size_t>());
  if (name == "top_p") candidates.TopP(step["p"].get<float>(), step["min_keep"].get<size_t>());
  if (name == "min_p") candidates.MinP(step["p"].get<float>(), step["min_keep"].get<size_t>());
  if (name != "temp") return;
  const auto temperature = step["t"].get<float>();
  if (temperature > 0) {
    candidates.Scale(temperature);
  } else {
    candidates.TopK(1);
  }
}

struct Survivor {
  int32_t id;
  double probability;
};

// What a chain leaves of a row, by ascending id.
std::vector<Survivor> SurvivorsOf(const json& all, const json& entry) {
  std::vector<float> logits;
  for (const json& value : all["logits"][entry["logits"].get<std::string>()]) {
    logits.push_back(value.is_string() ? -INFINITY : value.get<float>());
  }
  const auto history = all["histories"][entry["history"].get<std::string>()].get<std::vector<int32_t>>();
  for (const json& step : entry["chain"]) {
    if (step["sampler"] != "penalties") continue;
    RepetitionPenalty penalty(step["repeat"].get<float>(), static_cast<size_t>(std::max(0, step["last_n"].get<int>())));
    penalty.Accept(history);
    std::vector<Candidate> changed;
    penalty.Apply(logits, changed);
  }
  std::vector<Candidate> storage(logits.size());
  Candidates candidates(storage);
  EXPECT_TRUE(candidates.TakeAll(logits));
  for (const json& step : entry["chain"]) Apply(step, candidates);
  std::vector<Survivor> survivors;
  double max = -INFINITY;
  for (const Candidate& c : candidates.items()) max = std::max(max, double{c.logit});
  double sum = 0;
  for (const Candidate& c : candidates.items()) {
    if (!std::isfinite(c.logit)) continue;
    survivors.push_back({c.id, std::exp(c.logit - max)});
    sum += survivors.back().probability;
  }
  for (Survivor& survivor : survivors) survivor.probability /= sum;
  std::sort(survivors.begin(), survivors.end(), [](const Survivor& a, const Survivor& b) { return a.id < b.id; });
  return survivors;
}

std::vector<double> Probabilities(const std::vector<Survivor>& survivors) {
  std::vector<double> probabilities;
  for (const Survivor& survivor : survivors) probabilities.push_back(survivor.probability);
  return probabilities;
}

TEST(SamplingGolden, EverySamplerAndChainOfOursEqualsTheReference) {
  const json all = tests::ReadJson(tests::CommittedGolden("sampling/cases.json"));
  int compared = 0;
  for (const json& entry : all["cases"]) {
    if (!IsOurs(entry["chain"]) || !entry.value("normative", true)) continue;
    SCOPED_TRACE(entry["chain"].dump() + " of " + entry["logits"].get<std::string>());
    const std::vector<Survivor> survivors = SurvivorsOf(all, entry);
    auto ours = Probabilities(survivors);
    auto theirs = entry["probs"].get<std::vector<double>>();
    ASSERT_EQ(ours.size(), theirs.size());
    if (entry.value("ties", false)) {
      std::sort(ours.begin(), ours.end());
      std::sort(theirs.begin(), theirs.end());
    } else if (entry["ids"].is_array()) {
      std::vector<int32_t> ids;
      for (const Survivor& survivor : survivors) ids.push_back(survivor.id);
      EXPECT_EQ(ids, entry["ids"].get<std::vector<int32_t>>());
    }
    for (size_t i = 0; i < ours.size(); ++i) EXPECT_NEAR(ours[i], theirs[i], 2e-6 + 2e-5 * theirs[i]) << i;
    ++compared;
  }
  std::printf("compared %d of %zu cases\n", compared, all["cases"].size());
  EXPECT_GE(compared, 120);
}

}  // namespace
}  // namespace bulkhead::engine
