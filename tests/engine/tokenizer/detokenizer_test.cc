#include "engine/tokenizer/detokenizer.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "engine/tokenizer/utf8.h"

namespace bulkhead::engine {
namespace {

std::string Whole(std::string_view bytes) {
  Detokenizer detokenizer;
  std::string text;
  detokenizer.Push(bytes, text);
  detokenizer.Finish(text);
  return text;
}

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const CodePoint code = DecodeCodePoint(text);
    if (code.value == kInvalidCodePoint) return false;
    text.remove_prefix(code.bytes);
  }
  return true;
}

TEST(Detokenizer, ReplacesMaximalSubparts) {
  // The example of the Unicode standard, table 3-8 and after.
  EXPECT_EQ(Whole("a\xf1\x80\x80\xe1\x80\xc2"
                  "b\x80"
                  "c\x80\xbf"
                  "d"),
            "a\uFFFD\uFFFD\uFFFD"
            "b\uFFFD"
            "c\uFFFD\uFFFD"
            "d");
  EXPECT_EQ(Whole("\xc0\xaf\xe0\x80\xbf\xed\xa0\x80\xf4\x91\x80\x80"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
}

TEST(Detokenizer, FinishMarksAnIncompleteTailOnce) {
  Detokenizer detokenizer;
  std::string text;
  detokenizer.Push("x\xf0\x9f\xa6", text);
  EXPECT_EQ(text, "x");
  EXPECT_EQ(detokenizer.held_bytes(), 3U);
  EXPECT_TRUE(detokenizer.Finish(text));
  EXPECT_EQ(text, "x\uFFFD");
  EXPECT_FALSE(detokenizer.Finish(text));
}

TEST(Detokenizer, TextIsTheSameHoweverBytesAreSplitAndValidAtEveryStep) {
  std::mt19937 random(11);
  const std::string_view parts[] = {"a", "é", "日", "🦙", "\x80", "\xc3", "\xe2\x96", "\xf0\x9f", "\xff", "\xed\xa0"};
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (int i = 0; i < 8; ++i) bytes += parts[random() % std::size(parts)];
    const std::string whole = Whole(bytes);
    EXPECT_TRUE(IsUtf8(whole));
    Detokenizer detokenizer;
    std::string text;
    for (size_t at = 0; at < bytes.size();) {
      const size_t size = 1 + random() % 3;
      detokenizer.Push(std::string_view(bytes).substr(at, size), text);
      EXPECT_TRUE(IsUtf8(text));
      EXPECT_LE(detokenizer.held_bytes(), 3U);
      at += size;
    }
    detokenizer.Finish(text);
    EXPECT_EQ(text, whole);
  }
}

}  // namespace
}  // namespace bulkhead::engine
