#include <string>
#include <vector>

#include "tests/engine/tokenizer/made_tokenizer.h"

namespace bulkhead::engine {
namespace {

// Ids: letters a to z, then <x> and <xx> control, <t> user-defined, <xx><t> control.
std::unique_ptr<MadeTokenizer> Made() {
  return MustTokenizer([](tools::GgufWriter& writer) {
    std::vector<std::string> pieces;
    for (char c = 'a'; c <= 'z'; ++c) pieces.emplace_back(1, c);
    std::vector<int32_t> kinds(pieces.size(), 1);
    for (const auto& [piece, kind] :
         {std::pair{"<x>", 3}, {"<xx>", 3}, {"<t>", 4}, {"<xx><t>", 3}, {"<", 1}, {">", 1}}) {
      pieces.emplace_back(piece);
      kinds.push_back(kind);
    }
    writer.AddString("tokenizer.ggml.model", "gpt2");
    writer.AddString("tokenizer.ggml.pre", "qwen2");
    writer.AddStrings("tokenizer.ggml.tokens", pieces);
    writer.AddInts("tokenizer.ggml.token_type", kinds);
    writer.AddStrings("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
  });
}

std::string Pieces(const Tokenizer& tokenizer, std::string_view text, bool parse,
                   std::span<const ByteRange> literal = {}) {
  std::string joined;
  for (const int32_t id : tokenizer.Encode(text, {.add_special = false, .parse_special = parse, .literal = literal})) {
    joined += "[" + std::string(tokenizer.Piece(id)) + "]";
  }
  return joined;
}

TEST(SpecialSplitter, CutsControlTokensOnlyWhereAsked) {
  const auto made = Made();
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(Pieces(*made->tokenizer, "q<x>r", true), "[q][<x>][r]");
  EXPECT_EQ(Pieces(*made->tokenizer, "q<x>r", false), "[q][<][x][>][r]");
}

TEST(SpecialSplitter, CutsUserDefinedTokensAlways) {
  const auto made = Made();
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(Pieces(*made->tokenizer, "q<t><t>", false), "[q][<t>][<t>]");
}

TEST(SpecialSplitter, TakesLongerTokensFirst) {
  const auto made = Made();
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(Pieces(*made->tokenizer, "<t><xx><t><xx>", true), "[<t>][<xx><t>][<xx>]");
  EXPECT_EQ(Pieces(*made->tokenizer, "<xx><t>", false), "[<][x][x][>][<t>]");
}

TEST(SpecialSplitter, LeavesControlTokensInLiteralRangesAsText) {
  const auto made = Made();
  ASSERT_NE(made, nullptr);
  const std::vector<ByteRange> literal = {{3, 7}, {7, 8}};
  EXPECT_EQ(Pieces(*made->tokenizer, "<x>q<x>r<x>", true, literal), "[<x>][q][<][x][>][r][<x>]");
  // Half in a literal range is in it; a user-defined token is one wherever it stands.
  EXPECT_EQ(Pieces(*made->tokenizer, "<x><t>", true, std::vector<ByteRange>{{2, 6}}), "[<][x][>][<t>]");
}

}  // namespace
}  // namespace bulkhead::engine
