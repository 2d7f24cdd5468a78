#include "engine/tokenizer/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace bulkhead::engine {
namespace {

using Words = std::vector<std::string>;

Words Split(PreTokenizer kind, std::string_view text) {
  Words words;
  while (!text.empty()) {
    const size_t size = NextWord(kind, text);
    words.emplace_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return words;
}

Words Qwen2(std::string_view text) { return Split(PreTokenizer::kQwen2, text); }

TEST(PreTokenizer, Qwen2CutsWordsWithTheirLeadingSign) {
  EXPECT_EQ(Qwen2("Hello world"), (Words{"Hello", " world"}));
  EXPECT_EQ(Qwen2("(foo) \tbar"), (Words{"(foo", ")", " ", "\tbar"}));
  EXPECT_EQ(Qwen2("\nfoo"), (Words{"\n", "foo"}));
}

TEST(PreTokenizer, Qwen2CutsContractionsInAnyCase) {
  EXPECT_EQ(Qwen2("I'm we'LL it's 'sun"), (Words{"I", "'m", " we", "'LL", " it", "'s", " '", "sun"}));
  EXPECT_EQ(Qwen2("'x'"), (Words{"'x", "'"}));
}

TEST(PreTokenizer, Qwen2TakesDigitsOneByOneAndLlama3ByThrees) {
  EXPECT_EQ(Qwen2(" 1234"), (Words{" ", "1", "2", "3", "4"}));
  EXPECT_EQ(Split(PreTokenizer::kLlama3, "1234567"), (Words{"123", "456", "7"}));
}

TEST(PreTokenizer, Qwen2LeavesTheLastSpaceToTheWord) {
  EXPECT_EQ(Qwen2("a   b"), (Words{"a", "  ", " b"}));
  EXPECT_EQ(Qwen2("a   "), (Words{"a", "   "}));
  EXPECT_EQ(Qwen2("a   1"), (Words{"a", "  ", " ", "1"}));
}

TEST(PreTokenizer, Qwen2EndsSpacesAtTheLastNewline) {
  EXPECT_EQ(Qwen2("a \n \n  b"), (Words{"a", " \n \n", " ", " b"}));
  EXPECT_EQ(Qwen2("!?\r\n\nx"), (Words{"!?\r\n\n", "x"}));
}

TEST(PreTokenizer, KnowsLettersNumbersAndSpacesOfUnicode) {
  EXPECT_EQ(Qwen2("Größe 日本語"), (Words{"Größe", " 日本語"}));
  EXPECT_EQ(Qwen2("x²½"), (Words{"x", "²", "½"}));
  EXPECT_EQ(Qwen2("a\u3000\u3000b"), (Words{"a", "\u3000", "\u3000b"}));
  EXPECT_EQ(Qwen2("🦙🦙"), (Words{"🦙🦙"}));
}

TEST(PreTokenizer, Qwen35LetsMarksBePartOfWords) {
  // A combining acute accent, and a Devanagari vowel sign.
  const Words words = {"cafe\u0301", " हिन्दी", ".", "1", "2"};
  EXPECT_EQ(Split(PreTokenizer::kQwen35, "cafe\u0301 हिन्दी.12"), words);
  EXPECT_EQ(Qwen2("e\u0301a"), (Words{"e", "\u0301a"}));
  EXPECT_EQ(Split(PreTokenizer::kQwen35, "e\u0301a"), (Words{"e\u0301a"}));
  EXPECT_EQ(Split(PreTokenizer::kQwen35, "!\u0301!"), (Words{"!\u0301", "!"}));
  EXPECT_EQ(Split(PreTokenizer::kQwen35, "I'm (foo) \tbar"), (Words{"I", "'m", " (", "foo", ")", " ", "\tbar"}));
}

TEST(PreTokenizer, RefactLetsNumbersStandAlone) {
  EXPECT_EQ(Split(PreTokenizer::kRefact, "x12  3 a's"), (Words{"x", "1", "2", "  ", "3", " a", "'s"}));
  EXPECT_EQ(Split(PreTokenizer::kRefact, "a  b "), (Words{"a", " ", " b", " "}));
}

TEST(PreTokenizer, NamesOfRealFilesAreKnown) {
  for (const char* name : {"qwen2", "qwen35", "lfm2", "dbrx", "refact", "olmo", "llama-bpe"}) {
    EXPECT_TRUE(PreTokenizerByName(name).has_value()) << name;
  }
  EXPECT_FALSE(PreTokenizerByName("no-such").has_value());
}

TEST(PreTokenizer, Gpt2CutsRunsWithOneLeadingSpace) {
  EXPECT_EQ(Split(PreTokenizer::kGpt2, "Hello  world's 1234 !!\n\nx"),
            (Words{"Hello", " ", " world", "'s", " 1234", " !!", "\n", "\n", "x"}));
  EXPECT_EQ(Split(PreTokenizer::kGpt2, "IT'S"), (Words{"IT", "'", "S"}));
}

TEST(PreTokenizer, TakesBytesThatAreNoUtf8AsSigns) {
  EXPECT_EQ(Qwen2("a\xff\xfe"
                  "b"),
            (Words{"a", "\xff\xfe", "b"}));
  EXPECT_EQ(Qwen2("\xe2\x96"), (Words{"\xe2\x96"}));
}

TEST(PreTokenizer, IsKnownByNameOnly) {
  EXPECT_EQ(PreTokenizerByName("qwen2"), PreTokenizer::kQwen2);
  EXPECT_EQ(PreTokenizerByName("default"), std::nullopt);
}

}  // namespace
}  // namespace bulkhead::engine
