#include <string>
#include <vector>

#include "tests/engine/tokenizer/made_tokenizer.h"
#include "tools/make_model/vocabulary_maker.h"

namespace bulkhead::engine {
namespace {

constexpr EncodeOptions kPlainText = {.add_special = false, .parse_special = false, .literal = {}};
constexpr char kSpace[] = "\xe2\x96\x81";

void AddSmall(tools::GgufWriter& writer) {
  const std::vector<std::string> pieces = {"<unk>", "<s>", "</s>", "<0x0A>", kSpace, "a", "b", "ab", "ba", "<0xC3>"};
  writer.AddString("tokenizer.ggml.model", "llama");
  writer.AddStrings("tokenizer.ggml.tokens", pieces);
  writer.AddInts("tokenizer.ggml.token_type", std::vector<int32_t>{2, 3, 3, 6, 1, 1, 1, 1, 1, 6});
  writer.AddFloats("tokenizer.ggml.scores", std::vector<float>{0, 0, 0, 0, -1, -9, -9, -5, -4, 0});
}

TEST(SpmEncoder, JoinsTheBestScoreFirst) {
  const auto made = MustTokenizer(AddSmall);
  ASSERT_NE(made, nullptr);
  // "ba" (-4) goes before "ab" (-5).
  EXPECT_EQ(made->tokenizer->Encode("aba", kPlainText), (std::vector<int32_t>{4, 5, 8}));
}

TEST(SpmEncoder, PutsASpaceBeforeTheTextAndBehindSpecialTokens) {
  const auto made = MustTokenizer(AddSmall);
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(made->tokenizer->Encode("ab</s>ab", {.add_special = true, .parse_special = true, .literal = {}}),
            (std::vector<int32_t>{1, 4, 7, 2, 4, 7}));
  const auto bare = MustTokenizer([](tools::GgufWriter& writer) {
    AddSmall(writer);
    writer.AddBool("tokenizer.ggml.add_space_prefix", false);
  });
  ASSERT_NE(bare, nullptr);
  EXPECT_EQ(bare->tokenizer->Encode("ab", kPlainText), (std::vector<int32_t>{7}));
}

TEST(SpmEncoder, FallsBackToBytesAndThenToUnknown) {
  const auto made = MustTokenizer(AddSmall);
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(made->tokenizer->Encode("\n\xc3\xa9", kPlainText), (std::vector<int32_t>{4, 3, 9, 0}));
}

TEST(SpmEncoder, GivesBackEveryByteOfAnyText) {
  const auto made = MustTokenizer([](tools::GgufWriter& writer) {
    tools::AddSpm(tools::MakeSpm(1000, 4), writer);
    writer.AddBool("tokenizer.ggml.add_space_prefix", false);
  });
  ASSERT_NE(made, nullptr);
  for (const std::string& text : {std::string("plain words, and signs: \xe2\x82\xac"),
                                  std::string("\x00\xff\xfe\xe2\x96", 5), std::string(100'000, 'z')}) {
    std::string back;
    for (const int32_t id : made->tokenizer->Encode(text, kPlainText)) made->tokenizer->AppendBytes(id, back);
    EXPECT_EQ(back, text);
  }
}

}  // namespace
}  // namespace bulkhead::engine
