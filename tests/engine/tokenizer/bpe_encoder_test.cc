#include <random>
#include <string>
#include <vector>

#include "engine/tokenizer/byte_alphabet.h"
#include "engine/tokenizer/utf8.h"
#include "tests/engine/tokenizer/made_tokenizer.h"
#include "tools/make_model/vocabulary_maker.h"

namespace bulkhead::engine {
namespace {

constexpr EncodeOptions kPlain = {.add_special = false, .parse_special = false, .literal = {}};

std::unique_ptr<MadeTokenizer> Made(uint32_t size) {
  return MustTokenizer([&](tools::GgufWriter& writer) { tools::AddBpe(tools::MakeBpe(size, 3), writer); });
}

// Merges by the definition: the lowest rank anywhere, leftmost of equals, until none is left.
std::vector<std::string> MergeByDefinition(const tools::MadeVocabulary& vocabulary, std::string_view word) {
  std::vector<std::string> parts;
  for (const char c : word) parts.emplace_back(ByteLetter(static_cast<uint8_t>(c)));
  for (;;) {
    size_t best_rank = vocabulary.merges.size();
    size_t best_at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const std::string merge = parts[i] + " " + parts[i + 1];
      for (size_t rank = 0; rank < best_rank; ++rank) {
        if (vocabulary.merges[rank] != merge) continue;
        best_rank = rank;
        best_at = i;
      }
    }
    if (best_rank == vocabulary.merges.size()) return parts;
    parts[best_at] += parts[best_at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
}

TEST(BpeEncoder, MergesShortAndLongWordsByTheDefinition) {
  const tools::MadeVocabulary vocabulary = tools::MakeBpe(700, 3);
  const auto made = Made(700);
  ASSERT_NE(made, nullptr);
  std::mt19937 random(1);
  for (const size_t length : {1U, 2U, 7U, 31U, 32U, 33U, 64U, 150U}) {
    std::string word(length, ' ');
    for (char& c : word) c = static_cast<char>('a' + random() % 10);
    std::vector<std::string> pieces;
    for (const int32_t id : made->tokenizer->Encode(word, kPlain)) pieces.emplace_back(made->tokenizer->Piece(id));
    EXPECT_EQ(pieces, MergeByDefinition(vocabulary, word)) << word;
  }
}

TEST(BpeEncoder, GivesBackEveryByteOfAnyText) {
  const auto made = Made(2000);
  ASSERT_NE(made, nullptr);
  std::mt19937 random(2);
  for (int round = 0; round < 200; ++round) {
    std::string text(random() % 200, ' ');
    for (char& c : text) c = static_cast<char>(random() % (round % 2 == 0 ? 256 : 128));
    std::string back;
    for (const int32_t id : made->tokenizer->Encode(text, kPlain)) made->tokenizer->AppendBytes(id, back);
    EXPECT_EQ(back, text);
  }
}

TEST(BpeEncoder, AMegabyteOfOneLetterIsEncodedInLinearithmicTime) {
  const auto made = Made(2000);
  ASSERT_NE(made, nullptr);
  const std::string text(1 << 20, 'a');
  std::string back;
  for (const int32_t id : made->tokenizer->Encode(text, kPlain)) made->tokenizer->AppendBytes(id, back);
  EXPECT_EQ(back, text);
}

TEST(BpeEncoder, MergesThatMakeNoPieceComeOutLetterByLetter) {
  const auto made = MustTokenizer([](tools::GgufWriter& writer) {
    writer.AddString("tokenizer.ggml.model", "gpt2");
    writer.AddString("tokenizer.ggml.pre", "gpt-2");
    writer.AddStrings("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "c", "abc"});
    writer.AddStrings("tokenizer.ggml.merges", std::vector<std::string>{"a b", "ab c"});
  });
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(made->tokenizer->Encode("ab", kPlain), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(made->tokenizer->Encode("abc", kPlain), (std::vector<int32_t>{3}));
  // d has no letter in this vocabulary.
  EXPECT_EQ(made->tokenizer->Encode("adb", kPlain), (std::vector<int32_t>{0, 1}));
}

}  // namespace
}  // namespace bulkhead::engine
