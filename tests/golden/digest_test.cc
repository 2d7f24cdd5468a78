// The determinism rule on models of real shape: every logits row has one 64-bit digest, whatever was computed beside
// it, however the prompt was cut, on however many threads and with which tier.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "tests/engine/model_runner.h"
#include "tests/engine/temporary_model.h"

namespace bulkhead::engine {
namespace {

constexpr uint32_t kLongPrompt = 530;  // crosses 256 and 512
constexpr std::array<uint32_t, 8> kBatchPrompts = {kLongPrompt, 1, 300, 7, 64, 260, 33, 100};
constexpr uint32_t kBatchChunk = 24;

struct Subject {
  tools::ModelSpec spec;
  uint32_t logits_every;  // rows whose digest is taken
  // Tiers slower than the best are run on a prefix of the prompt.
  uint32_t slow_tier_prompt;
};

uint64_t Digest(const std::vector<float>& row) {
  uint64_t hash = 14695981039346656037ULL;  // FNV-1a over 32-bit words
  for (const float value : row) {
    uint32_t word;
    std::memcpy(&word, &value, sizeof word);
    hash = (hash ^ word) * 1099511628211ULL;
  }
  return hash;
}

std::vector<int32_t> Prompt(uint32_t seed, uint32_t tokens, uint32_t vocabulary) {
  std::vector<int32_t> ids;
  uint64_t state = seed + 1;
  for (uint32_t i = 0; i < tokens; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    ids.push_back(static_cast<int32_t>((state >> 33) % vocabulary));
  }
  return ids;
}

std::vector<uint64_t> Digests(const std::vector<std::vector<float>>& rows) {
  std::vector<uint64_t> digests;
  for (const auto& row : rows) digests.push_back(Digest(row));
  return digests;
}

class DigestTest : public testing::Test {
 protected:
  std::unique_ptr<ModelRunner> Open(const TemporaryModel& model, uint32_t logits_every, uint32_t threads,
                                    const std::string& tier) {
    ModelRunner::Options options;
    options.shape = {.context = 576,
                     .sequences = kBatchPrompts.size(),
                     .forward_rows = kLongPrompt,
                     .logit_rows = kLongPrompt / logits_every + 1};
    options.threads = threads;
    options.tier = tier;
    auto runner = ModelRunner::Open(model.path(), options);
    EXPECT_TRUE(runner.ok()) << Message(runner.status());
    return runner.ok() ? std::move(*runner) : nullptr;
  }

  static std::vector<uint64_t> Alone(ModelRunner& runner, std::span<const int32_t> prompt, uint32_t chunk,
                                     uint32_t logits_every) {
    const uint32_t slot = runner.NewSequence();
    const auto rows = runner.Prefill(slot, prompt, chunk, logits_every);
    runner.EndSequence(slot);
    EXPECT_TRUE(rows.ok()) << Message(rows.status());
    return rows.ok() ? Digests(*rows) : std::vector<uint64_t>();
  }

  // Eight sequences at once, each given kBatchChunk tokens a forward until it has its whole prompt.
  static std::vector<std::vector<uint64_t>> Batched(ModelRunner& runner,
                                                    const std::vector<std::vector<int32_t>>& prompts,
                                                    uint32_t logits_every) {
    std::vector<std::vector<uint64_t>> digests(prompts.size());
    std::vector<uint32_t> slots;
    for (size_t i = 0; i < prompts.size(); ++i) slots.push_back(runner.NewSequence());
    for (size_t start = 0; start < kLongPrompt; start += kBatchChunk) {
      std::vector<ModelRunner::Feed> feeds;
      std::vector<size_t> owners;
      for (size_t i = 0; i < prompts.size(); ++i) {
        if (start >= prompts[i].size()) continue;
        const auto tokens =
            std::span(prompts[i]).subspan(start, std::min<size_t>(kBatchChunk, prompts[i].size() - start));
        feeds.push_back({slots[i], tokens, logits_every});
        for (size_t t = start; t < start + tokens.size(); ++t) {
          if ((t + 1) % logits_every == 0) owners.push_back(i);
        }
      }
      const auto rows = runner.Forward(feeds);
      EXPECT_TRUE(rows.ok()) << Message(rows.status());
      if (!rows.ok()) return digests;
      for (size_t row = 0; row < rows->size(); ++row) digests[owners[row]].push_back(Digest((*rows)[row]));
    }
    for (const uint32_t slot : slots) runner.EndSequence(slot);
    return digests;
  }

  void Check(const Subject& subject) {
    const TemporaryModel model(subject.spec);
    const uint32_t every = subject.logits_every;
    const auto runner = Open(model, every, 2, "");
    ASSERT_NE(runner, nullptr);
    std::vector<std::vector<int32_t>> prompts;
    std::vector<std::vector<uint64_t>> expected;
    for (uint32_t i = 0; i < kBatchPrompts.size(); ++i) {
      prompts.push_back(Prompt(i, kBatchPrompts[i], subject.spec.vocabulary));
      expected.push_back(Alone(*runner, prompts[i], 0, every));
    }
    ASSERT_EQ(expected[0].size(), kLongPrompt / every);
    EXPECT_EQ(Batched(*runner, prompts, every), expected) << "in a batch of 8";
    const std::pair<uint32_t, uint32_t> ways[] = {{1, 7}, {1, 0}, {2, 1}, {2, 7}, {2, 64}, {2, 0}};
    for (const auto& [threads, chunk] : ways) {
      runner->pool().SetActiveThreads(threads);
      EXPECT_EQ(Alone(*runner, prompts[0], chunk, every), expected[0])
          << "chunks of " << chunk << " on " << threads << " threads";
    }
    const auto tiers = RunnableTierNames();
    for (const std::string& tier : tiers) CheckTier(model, subject, tier, prompts[0], expected[0]);
    fmt::print("{}: {} rows a run, tiers {}\n", subject.spec.name, expected[0].size(), tiers.size());
  }

  void CheckTier(const TemporaryModel& model, const Subject& subject, const std::string& tier,
                 const std::vector<int32_t>& prompt, std::vector<uint64_t> expected) {
    const auto other = Open(model, subject.logits_every, 2, tier);
    ASSERT_NE(other, nullptr);
    const bool slow = tier == "reference";
    const uint32_t tokens = slow ? subject.slow_tier_prompt : kLongPrompt;
    expected.resize(tokens / subject.logits_every);
    EXPECT_EQ(Alone(*other, std::span(prompt).first(tokens), 64, subject.logits_every), expected) << "tier " << tier;
  }
};

TEST_F(DigestTest, LlamaQ8RowsDependOnTheirSequenceAlone) {
  Check({{.name = "llama-q8_0",
          .architecture = "llama",
          .type = WeightType::kQ8_0,
          .layers = 1,
          .embedding = 1120,
          .feed_forward = 1184,
          .heads = 8,
          .kv_heads = 2,
          .head = 128},
         1,
         kLongPrompt});
}

TEST_F(DigestTest, Qwen3Bf16RowsDependOnTheirSequenceAlone) {
  Check({{.name = "qwen3-bf16",
          .architecture = "qwen3",
          .type = WeightType::kBF16,
          .layers = 1,
          .embedding = 1056,
          .feed_forward = 1440,
          .heads = 9,
          .kv_heads = 3,
          .head = 128,
          .tied = true},
         1,
         265});
}

TEST_F(DigestTest, LargeVocabularyQ4RowsDependOnTheirSequenceAlone) {
  Check({{.name = "qwen3-q4_0-151936",
          .architecture = "qwen3",
          .type = WeightType::kQ4_0,
          .layers = 1,
          .embedding = 1056,
          .feed_forward = 1184,
          .heads = 8,
          .kv_heads = 4,
          .head = 128,
          .vocabulary = 151936,
          .tied = true},
         53,
         265});
}

// Hybrids of two kinds of layers: small, since every tier walks the whole state for every token.
tools::ModelSpec Hybrid(const std::string& architecture, WeightType type, uint32_t experts) {
  return {.name = architecture,
          .architecture = architecture,
          .type = type,
          .layers = 2,
          .embedding = 256,
          .feed_forward = 256,
          .heads = 8,
          .kv_heads = 2,
          .head = 32,
          .attention_every = 2,
          .experts = experts};
}

TEST_F(DigestTest, Mamba2RowsDependOnTheirSequenceAlone) { Check({Hybrid("mamba2", WeightType::kQ5_0, 0), 5, 265}); }

TEST_F(DigestTest, Lfm2RowsDependOnTheirSequenceAlone) { Check({Hybrid("lfm2", WeightType::kQ6_K, 0), 5, 265}); }

TEST_F(DigestTest, GraniteHybridMixtureRowsDependOnTheirSequenceAlone) {
  Check({Hybrid("granitehybrid", WeightType::kQ4_K, 6), 5, 265});
}

TEST_F(DigestTest, Qwen35RowsDependOnTheirSequenceAlone) { Check({Hybrid("qwen35", WeightType::kQ4_K, 0), 5, 265}); }

TEST_F(DigestTest, Qwen3NextMixtureRowsDependOnTheirSequenceAlone) {
  Check({Hybrid("qwen3next", WeightType::kF32, 6), 5, 265});
}

}  // namespace
}  // namespace bulkhead::engine
