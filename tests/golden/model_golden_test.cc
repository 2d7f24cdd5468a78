// Our logits and greedy choices against the reference's, by the rules of shared/golden/README.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "engine/tokenizer/tokenizer.h"
#include "tests/engine/model_runner.h"
#include "tests/golden/golden_set.h"

namespace bulkhead::engine {
namespace {

constexpr double kExactTolerance = 1e-4;
constexpr double kHalfKvTolerance = 0.1;

struct CaseResult {
  double max_abs = 0;
  double rms = 0;    // of both rows
  int agreed = 0;    // steps whose best token is the reference's
  int required = 0;  // steps that had to agree
  int failed = 0;    // of those, the ones that did not
  int steps = 0;
};

int32_t Best(const std::vector<float>& logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// The row's rms error; raises `max_abs` to its largest.
double RowError(const std::vector<float>& ours, const std::vector<float>& reference, double& max_abs) {
  EXPECT_EQ(ours.size(), reference.size());
  double sum = 0;
  for (size_t i = 0; i < std::min(ours.size(), reference.size()); ++i) {
    const double delta = std::abs(static_cast<double>(ours[i]) - reference[i]);
    sum += delta * delta;
    max_abs = std::max(max_abs, std::isnan(delta) ? INFINITY : delta);
  }
  return std::sqrt(sum / static_cast<double>(reference.size()));
}

// Feeds the prompt and then the reference's own choices, whatever ours would have been.
CaseResult RunTeacherForced(ModelRunner& runner, const GoldenCase& golden, double margin) {
  CaseResult result;
  const uint32_t slot = runner.NewSequence();
  auto logits = runner.Prefill(slot, golden.prompt_ids, 0, 0);
  EXPECT_TRUE(logits.ok()) << Message(logits.status());
  if (!logits.ok()) return result;
  const double last = RowError(logits->back(), golden.logits_last, result.max_abs);
  for (size_t step = 0; step < golden.greedy_ids.size(); ++step) {
    const bool same = Best(logits->back()) == golden.greedy_ids[step];
    const bool required = golden.greedy_margin[step] > margin;
    ++result.steps;
    result.agreed += same;
    result.required += required;
    result.failed += required && !same;
    logits = runner.Prefill(slot, std::span(&golden.greedy_ids[step], 1), 0, 0);
    EXPECT_TRUE(logits.ok()) << Message(logits.status());
    if (!logits.ok()) return result;
  }
  const double after = RowError(logits->back(), golden.logits_after, result.max_abs);
  result.rms = std::sqrt((last * last + after * after) / 2);
  runner.EndSequence(slot);
  return result;
}

std::unique_ptr<ModelRunner> Open(const GoldenModel& model, KvType kv_type) {
  ModelRunner::Options options;
  options.shape = {.context = 512, .sequences = 1, .kv_type = kv_type};
  auto runner = ModelRunner::Open(model.path, options);
  EXPECT_TRUE(runner.ok()) << model.path << ": " << Message(runner.status());
  return runner.ok() ? std::move(*runner) : nullptr;
}

bool IsF32(const GoldenModel& model) { return model.name.ends_with("-f32"); }

void ExpectExact(const GoldenModel& model) {
  SCOPED_TRACE(model.name);
  const auto runner = Open(model, KvType::kF32);
  ASSERT_NE(runner, nullptr);
  double worst = 0;
  for (const GoldenCase& golden : model.cases) {
    const CaseResult result = RunTeacherForced(*runner, golden, 0);
    EXPECT_LE(result.max_abs, kExactTolerance) << "prompt '" << golden.prompt << "'";
    EXPECT_EQ(result.failed, 0) << "prompt '" << golden.prompt << "'";
    worst = std::max(worst, result.max_abs);
  }
  std::printf("%-22s F32 KV: largest error %.2e, every greedy id equal\n", model.name.c_str(), worst);
}

void ExpectCloseWithHalfKv(const GoldenModel& model) {
  SCOPED_TRACE(model.name);
  const auto runner = Open(model, KvType::kF16);
  ASSERT_NE(runner, nullptr);
  int exempt = 0;
  int steps = 0;
  for (const GoldenCase& golden : model.cases) {
    const CaseResult result = RunTeacherForced(*runner, golden, 2 * kHalfKvTolerance);
    EXPECT_LE(result.max_abs, kHalfKvTolerance) << "prompt '" << golden.prompt << "'";
    EXPECT_EQ(result.failed, 0) << "prompt '" << golden.prompt << "'";
    exempt += result.steps - result.required;
    steps += result.steps;
  }
  std::printf("%-22s F16 KV: %d of %d steps exempt\n", model.name.c_str(), exempt, steps);
}

// No less exact than the peer: 1.0 times its error on average, 2 times in a single case.
void ExpectWithinPeersError(const GoldenModel& model) {
  SCOPED_TRACE(model.name);
  const auto runner = Open(model, KvType::kF16);
  ASSERT_NE(runner, nullptr);
  double ours = 0;
  double peers = 0;
  int exempt = 0;
  int steps = 0;
  for (const GoldenCase& golden : model.cases) {
    const CaseResult result = RunTeacherForced(*runner, golden, 2 * 2 * golden.native_rms);
    EXPECT_LE(result.rms, 2 * golden.native_rms) << "prompt '" << golden.prompt << "'";
    EXPECT_EQ(result.failed, 0) << "prompt '" << golden.prompt << "'";
    ours += result.rms;
    peers += golden.native_rms;
    exempt += result.steps - result.required;
    steps += result.steps;
  }
  EXPECT_LE(ours, peers);
  std::printf("%-22s error %.3f of llama.cpp's, %d of %d steps exempt\n", model.name.c_str(), ours / peers, exempt,
              steps);
}

class CommittedGolden : public testing::Test {
 protected:
  const std::vector<GoldenModel> models_ = LoadGoldenSet(CommittedGoldenFolder(), {"llama", "qwen3"});
};

TEST_F(CommittedGolden, HoldsTenModels) { EXPECT_EQ(models_.size(), 10u); }

void ExpectPromptIds(const GoldenModel& model) {
  SCOPED_TRACE(model.name);
  const auto runner = Open(model, KvType::kF16);
  ASSERT_NE(runner, nullptr);
  const auto tokenizer = Tokenizer::Create(runner->file());
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  for (const GoldenCase& golden : model.cases) {
    EXPECT_EQ(tokenizer->Encode(golden.prompt, {.add_special = true, .parse_special = true}), golden.prompt_ids)
        << "prompt '" << golden.prompt << "'";
  }
}

TEST_F(CommittedGolden, PromptIdsAreTheReferences) {
  for (const GoldenModel& model : models_) ExpectPromptIds(model);
}

TEST_F(CommittedGolden, F32WeightsWithF32KvGiveTheReferencesLogitsAndIds) {
  for (const GoldenModel& model : models_) {
    if (IsF32(model)) ExpectExact(model);
  }
}

TEST_F(CommittedGolden, F32WeightsWithF16KvStayClose) {
  for (const GoldenModel& model : models_) {
    if (IsF32(model)) ExpectCloseWithHalfKv(model);
  }
}

TEST_F(CommittedGolden, SmallerWeightTypesAreNoLessExactThanThePeer) {
  for (const GoldenModel& model : models_) {
    if (!IsF32(model)) ExpectWithinPeersError(model);
  }
}

TEST(SharedGolden, Stories260K) {
  const auto models = LoadGoldenSet(SharedGoldenFolder(), {"stories260K"});
  if (models.empty()) GTEST_SKIP() << "[no-shared-golden] " << SharedGoldenFolder();
  EXPECT_EQ(models.size(), 3u);
  for (const GoldenModel& model : models) {
    ExpectPromptIds(model);
    if (IsF32(model)) {
      ExpectExact(model);
      ExpectCloseWithHalfKv(model);
    } else {
      ExpectWithinPeersError(model);
    }
  }
}

TEST(SharedGolden, TypesWithScalesOfTheirOwnAreNoLessExactThanThePeer) {
  const auto models = LoadGoldenSet(
      SharedGoldenFolder(),
      {"llama-d256-q4_k_m", "llama-d256x1-q4_k", "llama-d256x1-q5_0", "llama-d256x1-q6_k", "qwen3-d256-q4_k_m"});
  if (models.empty()) GTEST_SKIP() << "[no-shared-golden] " << SharedGoldenFolder();
  EXPECT_EQ(models.size(), 5u);
  for (const GoldenModel& model : models) {
    ExpectPromptIds(model);
    ExpectWithinPeersError(model);
  }
}

struct Family {
  const char* prefix;
  size_t models;
};

class SharedFamilies : public testing::TestWithParam<Family> {};

TEST_P(SharedFamilies, AreTheReferences) {
  const auto models = LoadGoldenSet(SharedGoldenFolder("families"), {GetParam().prefix});
  if (models.empty()) GTEST_SKIP() << "[no-shared-golden] " << SharedGoldenFolder("families");
  EXPECT_EQ(models.size(), GetParam().models);
  for (const GoldenModel& model : models) {
    ExpectPromptIds(model);
    if (IsF32(model)) {
      ExpectExact(model);
      ExpectCloseWithHalfKv(model);
    } else {
      ExpectWithinPeersError(model);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Recurrent, SharedFamilies,
                         testing::Values(Family{"mamba2", 3}, Family{"lfm2", 2}, Family{"granitehybrid-", 2},
                                         Family{"granitehybridmoe", 1}, Family{"qwen35", 2}, Family{"qwen3next", 1}),
                         [](const auto& info) {
                           std::string name = info.param.prefix;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace bulkhead::engine
