#include "engine/tokenizer/tokenizer.h"

#include <string>
#include <vector>

#include "tests/engine/tokenizer/made_tokenizer.h"
#include "tools/make_model/vocabulary_maker.h"

namespace bulkhead::engine {
namespace {

TEST(Tokenizer, LoadsTheLargestVocabularyAndBoundsItsTables) {
  const auto made = MustTokenizer([](tools::GgufWriter& writer) { tools::AddBpe(tools::MakeBpe(151'936, 5), writer); });
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(made->tokenizer->size(), 151'936U);
  EXPECT_EQ(made->tokenizer->kind_name(), "bpe");
  EXPECT_LT(Tokenizer::TableBytes(*made->file), 16U << 20);
  const std::string text = "A text of some words, with numbers 123 and a new\n\nline.";
  std::string back;
  for (const int32_t id : made->tokenizer->Encode(text, {})) made->tokenizer->AppendBytes(id, back);
  EXPECT_EQ(back, text);
}

TEST(Tokenizer, AddsBeginAndEndTokensWhereTheFileAsks) {
  const auto made = MustTokenizer([](tools::GgufWriter& writer) {
    tools::AddSpm(tools::MakeSpm(400, 1), writer);
    writer.AddBool("tokenizer.ggml.add_eos_token", true);
  });
  ASSERT_NE(made, nullptr);
  const auto ids = made->tokenizer->Encode("a", {});
  EXPECT_EQ(ids.front(), 1);
  EXPECT_EQ(ids.back(), 2);
  EXPECT_EQ(made->tokenizer->Encode("", {}), (std::vector<int32_t>{1, 2}));
  EXPECT_TRUE(made->tokenizer->Encode("", {.add_special = false}).empty());
}

TEST(Tokenizer, EndOfGenerationIsASet) {
  const auto made = MustTokenizer([](tools::GgufWriter& writer) {
    tools::AddBpe(tools::MakeBpe(400, 1), writer);
    writer.AddU32("tokenizer.ggml.eot_token_id", 5);
  });
  ASSERT_NE(made, nullptr);
  const Tokenizer& tokenizer = *made->tokenizer;
  const int32_t text_end = *tokenizer.Find("<|endoftext|>");
  const int32_t message_end = *tokenizer.Find("<|im_end|>");
  const auto set = tokenizer.end_of_generation();
  EXPECT_EQ(std::vector<int32_t>(set.begin(), set.end()), (std::vector<int32_t>{5, text_end, message_end}));
  EXPECT_TRUE(tokenizer.IsEndOfGeneration(message_end));
  EXPECT_FALSE(tokenizer.IsEndOfGeneration(*tokenizer.Find("<|im_start|>")));
}

TEST(Tokenizer, NamesOfControlTokensAreShownOnlyWhereAsked) {
  const auto made = MustTokenizer([](tools::GgufWriter& writer) { tools::AddBpe(tools::MakeBpe(400, 1), writer); });
  ASSERT_NE(made, nullptr);
  const int32_t end = *made->tokenizer->Find("<|im_end|>");
  std::string text;
  made->tokenizer->AppendBytes(end, text);
  EXPECT_EQ(text, "");
  made->tokenizer->AppendBytes(end, text, true);
  EXPECT_EQ(text, "<|im_end|>");
  EXPECT_TRUE(made->tokenizer->IsControl(end));
  EXPECT_EQ(made->tokenizer->Piece(400), "");
}

TEST(Tokenizer, FewestTokensIsALowerBound) {
  const auto made = MustTokenizer([](tools::GgufWriter& writer) { tools::AddBpe(tools::MakeBpe(3000, 1), writer); });
  ASSERT_NE(made, nullptr);
  for (const size_t size : {0U, 1U, 16U, 1000U}) {
    const std::string text(size, 'a');
    EXPECT_GE(made->tokenizer->Encode(text, {}).size(), made->tokenizer->FewestTokens(size));
  }
}

TEST(Tokenizer, UnknownModelsAreUnsupportedByName) {
  const auto made = TryTokenizer([](tools::GgufWriter& writer) { writer.AddString("tokenizer.ggml.model", "t5"); });
  EXPECT_EQ(ReasonOf(made.status()), Reason::kModelUnsupported);
  EXPECT_NE(Message(made.status()).find("tokenizer t5"), std::string::npos);
  EXPECT_EQ(ReasonOf(TryTokenizer([](tools::GgufWriter&) {}).status()), Reason::kModelInvalid);
}

}  // namespace
}  // namespace bulkhead::engine
