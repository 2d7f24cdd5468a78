#include "engine/sampling/text_stream.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tools/make_model/gguf_writer.h"
#include "tools/make_model/vocabulary_maker.h"

namespace bulkhead::engine {
namespace {

class TextStreamTest : public testing::Test {
 protected:
  void SetUp() override {
    tools::GgufWriter writer;
    tools::AddBpe(tools::MakeBpe(512, 1), writer);
    bytes_ = writer.Header();
    auto file = GgufFile::Parse(std::as_bytes(std::span(bytes_)));
    ASSERT_TRUE(file.ok());
    auto tokenizer = Tokenizer::Create(*file);
    ASSERT_TRUE(tokenizer.ok());
    tokenizer_.emplace(std::move(*tokenizer));
  }

  // One token for each byte.
  std::vector<int32_t> ByteIds(std::string_view text) {
    std::vector<int32_t> ids;
    for (const char c : text) ids.push_back(tokenizer_->Encode(std::string_view(&c, 1), {.add_special = false})[0]);
    return ids;
  }

  std::string bytes_;
  std::optional<Tokenizer> tokenizer_;
};

TEST_F(TextStreamTest, ShowsCharactersOnlyWhole) {
  TextStream stream(*tokenizer_, {});
  std::vector<std::string> steps;
  for (const int32_t id : ByteIds("h\xc3\xa9\xf0\x9f\xa6\x99")) {
    std::string text;
    stream.Push(id, text);
    steps.push_back(text);
  }
  EXPECT_EQ(steps, (std::vector<std::string>{"h", "", "\xc3\xa9", "", "", "", "\xf0\x9f\xa6\x99"}));
}

TEST_F(TextStreamTest, StopsOnAStringAcrossTokensAndReleasesNothingOfIt) {
  TextStream stream(*tokenizer_, {"\nUser:"});
  std::string text;
  std::optional<size_t> stopped;
  for (const int32_t id : ByteIds("Hi\nUs\nUser: x")) {
    stopped = stream.Push(id, text);
    if (stopped.has_value()) break;
  }
  EXPECT_EQ(stopped, 0U);
  EXPECT_FALSE(stream.Finish(text));
  EXPECT_EQ(text, "Hi\nUs");
}

TEST_F(TextStreamTest, FlushesAndMarksACutCharacterAtTheEnd) {
  TextStream stream(*tokenizer_, {"\xf0\x9f\xa6\x99"});
  std::string text;
  for (const int32_t id : ByteIds("ok\xf0\x9f")) EXPECT_EQ(stream.Push(id, text), std::nullopt);
  EXPECT_EQ(text, "ok");
  EXPECT_TRUE(stream.Finish(text));
  EXPECT_EQ(text, "ok\xef\xbf\xbd");
}

TEST_F(TextStreamTest, ControlTokensShowNothing) {
  TextStream stream(*tokenizer_, {});
  std::string text;
  stream.Push(*tokenizer_->Find("<|im_end|>"), text);
  stream.Push(-1, text);
  stream.Push(1 << 20, text);
  EXPECT_EQ(text, "");
}

}  // namespace
}  // namespace bulkhead::engine
