// Files whose vocabulary is wrong: refused by name, or read without harm.
#include <cmath>
#include <string>
#include <vector>

#include "tests/engine/tokenizer/made_tokenizer.h"

namespace bulkhead::engine {
namespace {

using Strings = std::vector<std::string>;

struct Keys {
  std::string model = "llama";
  Strings pieces = {"a", "b", "<0x41>"};
  std::vector<int32_t> kinds = {1, 1, 6};
  std::vector<float> scores = {0, 0, 0};
  Strings merges = {"a b"};
};

void Write(const Keys& keys, tools::GgufWriter& writer) {
  writer.AddString("tokenizer.ggml.model", keys.model);
  writer.AddString("tokenizer.ggml.pre", "qwen2");
  writer.AddStrings("tokenizer.ggml.tokens", keys.pieces);
  writer.AddInts("tokenizer.ggml.token_type", keys.kinds);
  writer.AddFloats("tokenizer.ggml.scores", keys.scores);
  writer.AddStrings("tokenizer.ggml.merges", keys.merges);
}

void ExpectInvalid(const std::function<void(tools::GgufWriter&)>& add_keys, std::string_view said) {
  const auto made = TryTokenizer(add_keys);
  EXPECT_EQ(ReasonOf(made.status()), Reason::kModelInvalid);
  EXPECT_NE(Message(made.status()).find(said), std::string::npos) << Message(made.status());
}

void ExpectInvalid(const Keys& keys, std::string_view said) {
  ExpectInvalid([&](tools::GgufWriter& writer) { Write(keys, writer); }, said);
}

TEST(HostileVocabulary, TheSmallestGoodOneIsRead) {
  EXPECT_NE(MustTokenizer([](tools::GgufWriter& writer) { Write({}, writer); }), nullptr);
}

TEST(HostileVocabulary, ByteTokensThatAreNoBytesAreRefused) {
  for (const char* piece : {"<0x-1>", "<0x4>", "<0x100>", "<0xg0>", "41", ""}) {
    ExpectInvalid(Keys{.pieces = {"a", "b", piece}}, "is not <0xHH>");
  }
}

TEST(HostileVocabulary, CountsThatDifferAreRefused) {
  ExpectInvalid(Keys{.kinds = {1, 1}}, "2 entries for 3 pieces");
  ExpectInvalid(Keys{.scores = {0, 0, 0, 0}}, "tokenizer.ggml.scores");
  ExpectInvalid(Keys{.pieces = {}, .kinds = {}, .scores = {}}, "0 pieces");
}

TEST(HostileVocabulary, KindsAndScoresThatDoNotExistAreRefused) {
  ExpectInvalid(Keys{.kinds = {1, 7, 6}}, "token 1 is of kind 7");
  ExpectInvalid(Keys{.kinds = {1, -1, 6}}, "token 1 is of kind -1");
  ExpectInvalid(Keys{.scores = {0, std::nanf(""), 0}}, "entry 1 is not a number");
}

TEST(HostileVocabulary, MergesThatAreNotTwoTextsAreRefused) {
  for (const char* merge : {"", "ab", " ", "a ", " a"}) {
    ExpectInvalid(Keys{.model = "gpt2", .merges = {"a b", merge}}, "entry 1");
  }
}

TEST(HostileVocabulary, MergesOfTextsThatAreNoPiecesAreBounded) {
  Keys keys{.model = "gpt2"};
  for (int i = 0; i < 70'000; ++i) keys.merges.push_back("x" + std::to_string(i) + " y");
  ExpectInvalid(keys, "are no pieces");
}

TEST(HostileVocabulary, ArraysOfOtherTypesAreRefused) {
  ExpectInvalid(
      [](tools::GgufWriter& writer) {
        writer.AddString("tokenizer.ggml.model", "llama");
        writer.AddInts("tokenizer.ggml.tokens", std::vector<int32_t>{1, 2});
      },
      "not an array of strings");
  ExpectInvalid(
      [](tools::GgufWriter& writer) {
        writer.AddString("tokenizer.ggml.model", "llama");
        writer.AddString("tokenizer.ggml.tokens", "a");
      },
      "not an array of strings");
  ExpectInvalid(
      [](tools::GgufWriter& writer) {
        writer.AddString("tokenizer.ggml.model", "llama");
        writer.AddStrings("tokenizer.ggml.tokens", Strings{"a"});
        writer.AddFloats("tokenizer.ggml.token_type", std::vector<float>{1});
      },
      "not an array of 32-bit integers");
  ExpectInvalid(
      [](tools::GgufWriter& writer) {
        writer.AddString("tokenizer.ggml.model", "gpt2");
        writer.AddString("tokenizer.ggml.pre", "qwen2");
        writer.AddStrings("tokenizer.ggml.tokens", Strings{"a"});
        writer.AddInts("tokenizer.ggml.merges", std::vector<int32_t>{1});
      },
      "tokenizer.ggml.merges");
}

TEST(HostileVocabulary, SpecialIdsOutsideTheVocabularyAreNone) {
  const auto made = MustTokenizer([](tools::GgufWriter& writer) {
    Write({}, writer);
    writer.AddU32("tokenizer.ggml.bos_token_id", 0xffffffff);
    writer.AddI32("tokenizer.ggml.eos_token_id", -1);
    writer.AddU32("tokenizer.ggml.eot_token_id", 3);
    writer.AddU32("tokenizer.ggml.unknown_token_id", 0xffffffff);
    writer.AddBool("tokenizer.ggml.add_eos_token", true);
  });
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(made->tokenizer->bos(), std::nullopt);
  EXPECT_EQ(made->tokenizer->eos(), std::nullopt);
  EXPECT_TRUE(made->tokenizer->end_of_generation().empty());
  EXPECT_EQ(made->tokenizer->Encode("aZ", {}), (std::vector<int32_t>{0}));
}

TEST(HostileVocabulary, LongSpecialTokensAreNotLookedFor) {
  const std::string longest(300, '<');
  const auto made = MustTokenizer([&](tools::GgufWriter& writer) {
    Write({.pieces = {"a", longest, "<0x41>"}, .kinds = {1, 4, 6}}, writer);
  });
  ASSERT_NE(made, nullptr);
  // Each of its bytes, and those of the space before it, is unknown.
  EXPECT_EQ(made->tokenizer->Encode(longest, {.add_special = false}), std::vector<int32_t>(303, 0));
}

}  // namespace
}  // namespace bulkhead::engine
