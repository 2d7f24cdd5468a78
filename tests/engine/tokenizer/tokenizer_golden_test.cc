#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/tokenizer/tokenizer.h"
#include "tests/engine/support/golden_files.h"

namespace bulkhead::engine {
namespace {

using tests::OpenGgufFile;
using tests::ReadJson;
using tests::SharedGolden;

std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

struct VectorsCase {
  std::string vocabulary;
  std::string vectors;
  EncodeOptions options;
};

class TokenizerVectors : public testing::TestWithParam<VectorsCase> {};

TEST_P(TokenizerVectors, IdsAndBytesEqualTheReference) {
  const auto golden = SharedGolden();
  if (!golden.has_value()) GTEST_SKIP() << "[no-shared-golden] tokenizer vectors";
  const VectorsCase& param = GetParam();
  const auto model = OpenGgufFile(*golden + "/tokenizer/" + param.vocabulary);
  ASSERT_NE(model, nullptr);
  const auto tokenizer = Tokenizer::Create(model->file);
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  const auto vectors = ReadJson(*golden + "/tokenizer/" + param.vectors);
  ASSERT_GT(vectors.size(), 4U);
  for (const auto& vector : vectors) {
    const auto text = vector["text"].get<std::string>();
    const auto ids = tokenizer->Encode(text, param.options);
    EXPECT_EQ(ids, vector["ids"].get<std::vector<int32_t>>()) << "text: \"" << text << '"';
    EXPECT_GE(ids.size(), tokenizer->FewestTokens(text.size()));
    if (!vector.contains("detok_hex")) continue;
    std::string bytes;
    for (const int32_t id : ids) tokenizer->AppendBytes(id, bytes);
    EXPECT_EQ(bytes, FromHex(vector["detok_hex"].get<std::string>())) << "text: \"" << text << '"';
  }
}

constexpr EncodeOptions kPlainGolden = {.add_special = false, .parse_special = false, .literal = {}};
constexpr EncodeOptions kSpecial = {.add_special = true, .parse_special = false, .literal = {}};
constexpr EncodeOptions kParsed = {.add_special = true, .parse_special = true, .literal = {}};

INSTANTIATE_TEST_SUITE_P(
    Golden, TokenizerVectors,
    testing::Values(VectorsCase{"ggml-vocab-llama-spm.gguf", "ggml-vocab-llama-spm.vectors.json", kPlainGolden},
                    VectorsCase{"ggml-vocab-phi-3.gguf", "ggml-vocab-phi-3.vectors.json", kPlainGolden},
                    VectorsCase{"ggml-vocab-gpt-2.gguf", "ggml-vocab-gpt-2.vectors.json", kPlainGolden},
                    VectorsCase{"ggml-vocab-mpt.gguf", "ggml-vocab-mpt.vectors.json", kPlainGolden},
                    VectorsCase{"vocab-llama3.1.gguf", "ggml-vocab-llama-bpe.vectors.json", kPlainGolden},
                    VectorsCase{"vocab-qwen3.gguf", "ggml-vocab-qwen2.vectors.json", kPlainGolden},
                    VectorsCase{"vocab-qwen3.gguf", "vocab-qwen3.chat.addspecial1.parsespecial0.json", kSpecial},
                    VectorsCase{"vocab-qwen3.gguf", "vocab-qwen3.chat.addspecial1.parsespecial1.json", kParsed},
                    VectorsCase{"vocab-llama3.1.gguf", "vocab-llama3.1.chat.addspecial1.parsespecial0.json", kSpecial},
                    VectorsCase{"vocab-llama3.1.gguf", "vocab-llama3.1.chat.addspecial1.parsespecial1.json", kParsed}),
    [](const testing::TestParamInfo<VectorsCase>& info) {
      std::string name = info.param.vectors.substr(0, info.param.vectors.rfind('.'));
      for (char& c : name) {
        if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
      }
      return name;
    });

TEST(TokenizerGolden, PromptIdsOfSupportedCoreModelsAreExact) {
  const auto golden = SharedGolden();
  if (!golden.has_value()) GTEST_SKIP() << "[no-shared-golden] core models";
  const auto manifest = ReadJson(*golden + "/core/manifest.json");
  int prompts = 0;
  for (const auto& entry : manifest["models"]) {
    const auto name = entry["file"].get<std::string>();
    const auto model = OpenGgufFile(*golden + "/core/" + name);
    ASSERT_NE(model, nullptr);
    const auto tokenizer = Tokenizer::Create(model->file);
    ASSERT_TRUE(tokenizer.ok()) << name << ": " << Message(tokenizer.status());
    for (const auto& c : entry["cases"]) {
      const auto prompt = c["prompt"].get<std::string>();
      EXPECT_EQ(tokenizer->Encode(prompt, kParsed), c["prompt_ids"].get<std::vector<int32_t>>())
          << name << ": \"" << prompt << '"';
      ++prompts;
    }
  }
  EXPECT_GE(prompts, 100);
}

TEST(TokenizerGolden, UnknownTokenizersAreRefusedByName) {
  const auto golden = SharedGolden();
  if (!golden.has_value()) GTEST_SKIP() << "[no-shared-golden] vocabularies";
  const std::pair<const char*, const char*> expected[] = {{"ggml-vocab-falcon.gguf", "falcon"},
                                                          {"ggml-vocab-deepseek-llm.gguf", "deepseek-llm"},
                                                          {"ggml-vocab-gpt-neox.gguf", "tokenizer.ggml.pre"},
                                                          {"ggml-vocab-bert-bge.gguf", "bert"}};
  for (const auto& [file, named] : expected) {
    const auto model = OpenGgufFile(*golden + "/tokenizer/" + file);
    ASSERT_NE(model, nullptr);
    const auto tokenizer = Tokenizer::Create(model->file);
    EXPECT_EQ(ReasonOf(tokenizer.status()), Reason::kModelUnsupported);
    EXPECT_NE(Message(tokenizer.status()).find(named), std::string::npos) << Message(tokenizer.status());
  }
}

}  // namespace
}  // namespace bulkhead::engine
