// What make_model writes is read back by the parser, whole.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "engine/gguf/gguf.h"
#include "tools/make_model/write_model.h"

namespace bulkhead::tools {
namespace {

std::string Make(const ModelSpec& spec) {
  std::string bytes;
  const absl::Status status = WriteModel(spec, [&](std::span<const std::byte> part) {
    bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << Message(status);
  return bytes;
}

TEST(MakeModel, WritesEveryTypeArchitectureAndTokenizer) {
  using enum engine::WeightType;
  for (const engine::WeightType type : {kF32, kF16, kBF16, kQ8_0, kQ5_0, kQ4_0, kQ6_K, kQ4_K}) {
    for (const char* architecture : {"llama", "qwen3"}) {
      ModelSpec spec;
      spec.type = type;
      spec.architecture = architecture;
      spec.tokenizer = type == kF16 ? "spm" : "bpe";
      spec.tied = type == kBF16;
      const std::string bytes = Make(spec);
      const auto file = engine::GgufFile::Parse(std::as_bytes(std::span(bytes)));
      ASSERT_TRUE(file.ok()) << Message(file.status());
      EXPECT_EQ(*file->GetString("general.architecture"), architecture);
      EXPECT_EQ(file->FindTensor("blk.1.ffn_down.weight")->type, type);
      EXPECT_EQ(file->FindTensor("output.weight") == nullptr, spec.tied);
      EXPECT_EQ(file->FindTensor("blk.0.attn_q_norm.weight") != nullptr, spec.architecture == "qwen3");
      EXPECT_EQ(file->Find("tokenizer.ggml.tokens")->count(), spec.vocabulary);
      const engine::TensorInfo& last = file->tensors().back();
      EXPECT_EQ(last.bytes.data() + last.bytes.size(), std::as_bytes(std::span(bytes)).data() + bytes.size());
    }
  }
}

TEST(MakeModel, WritesHybridsWithTheKeysThatSayWhichLayersAttend) {
  for (const char* architecture : {"granitehybrid", "lfm2", "qwen35", "qwen3next", "mamba2"}) {
    ModelSpec spec;
    spec.architecture = architecture;
    spec.attention_every = 2;
    const std::string bytes = Make(spec);
    const auto file = engine::GgufFile::Parse(std::as_bytes(std::span(bytes)));
    ASSERT_TRUE(file.ok()) << Message(file.status());
    EXPECT_EQ(file->FindTensor("blk.0.attn_q.weight"), nullptr) << architecture;
    EXPECT_EQ(file->FindTensor("blk.1.attn_q.weight") != nullptr, spec.architecture != "mamba2") << architecture;
  }
}

TEST(MakeModel, WritesTheSameBytesForTheSameSeedOnly) {
  ModelSpec spec;
  const std::string first = Make(spec);
  EXPECT_EQ(first, Make(spec));
  spec.seed = 2;
  EXPECT_NE(first, Make(spec));
}

TEST(MakeModel, WeightsHaveTheSpreadThatKeepsActivationsInRange) {
  ModelSpec spec;
  spec.type = engine::WeightType::kF32;
  const std::string bytes = Make(spec);
  const auto file = engine::GgufFile::Parse(std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(file.ok());
  const engine::TensorInfo* tensor = file->FindTensor("blk.0.ffn_up.weight");
  const auto* weights = reinterpret_cast<const float*>(tensor->bytes.data());
  double sum = 0;
  double squares = 0;
  for (uint64_t i = 0; i < tensor->weights(); ++i) {
    sum += weights[i];
    squares += double{weights[i]} * weights[i];
  }
  const auto count = static_cast<double>(tensor->weights());
  const double wanted = 1 / std::sqrt(static_cast<double>(spec.embedding));
  EXPECT_NEAR(sum / count, 0, 0.02 * wanted);
  EXPECT_GT(std::sqrt(squares / count), 0.6 * wanted);
  EXPECT_LT(std::sqrt(squares / count), 1.6 * wanted);
}

TEST(MakeModel, RefusesShapesThatMakeNoModel) {
  ModelSpec spec;
  spec.feed_forward = 100;
  EXPECT_EQ(ReasonOf(Validate(spec)), Reason::kInvalidRequest);
  spec = {};
  spec.kv_heads = 3;
  EXPECT_EQ(ReasonOf(Validate(spec)), Reason::kInvalidRequest);
  spec = {};
  spec.architecture = "gpt";
  EXPECT_EQ(ReasonOf(Validate(spec)), Reason::kInvalidRequest);
}

}  // namespace
}  // namespace bulkhead::tools
