#include "engine/gguf/gguf.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <string>
#include <vector>

#include "tools/make_model/gguf_writer.h"

namespace bulkhead::engine {
namespace {

using tools::GgufWriter;

absl::StatusOr<GgufFile> Parse(const std::string& bytes) { return GgufFile::Parse(std::as_bytes(std::span(bytes))); }

TEST(Gguf, ReadsKeysOfEveryType) {
  GgufWriter writer;
  writer.AddU32("u32", 7);
  writer.AddU64("u64", 1ULL << 40);
  writer.AddI32("i32", -3);
  writer.AddFloat("f32", 0.5f);
  writer.AddBool("bool", true);
  writer.AddString("string", "text");
  writer.AddStrings("strings", std::vector<std::string>{"a", "", "bc"});
  writer.AddFloats("floats", std::vector<float>{1, 2});
  writer.AddInts("ints", std::vector<int32_t>{-1, 5});
  const std::string bytes = writer.Header();
  const auto file = Parse(bytes);
  ASSERT_TRUE(file.ok()) << Message(file.status());
  EXPECT_EQ(file->keys().size(), 9U);
  EXPECT_EQ(*file->GetU32("u32"), 7U);
  EXPECT_EQ(file->Find("u64")->AsUnsigned(), 1ULL << 40);
  EXPECT_EQ(file->Find("i32")->AsSigned(), -3);
  EXPECT_EQ(file->Find("i32")->AsUnsigned(), std::nullopt);
  EXPECT_EQ(*file->GetFloat("f32"), 0.5f);
  EXPECT_TRUE(*file->GetBool("bool", false));
  EXPECT_EQ(*file->GetString("string"), "text");
  std::vector<std::string_view> strings;
  const auto view = file->Find("strings")->AsStrings();
  ASSERT_TRUE(view.has_value());
  for (const std::string_view text : *view) strings.push_back(text);
  EXPECT_EQ(strings, (std::vector<std::string_view>{"a", "", "bc"}));
  EXPECT_EQ((*file->Find("floats")->AsFloats())[1], 2.0f);
  EXPECT_EQ((*file->Find("ints")->AsInts())[0], -1);
  EXPECT_EQ(file->Find("ints")->UnsignedAt(1), 5U);
  EXPECT_EQ(file->Find("ints")->UnsignedAt(0), std::nullopt);
  EXPECT_EQ(file->Find("ints")->UnsignedAt(2), std::nullopt);
}

TEST(Gguf, NamesKeysThatAreMissingOrOfAnotherType) {
  GgufWriter writer;
  writer.AddString("text", "x");
  writer.AddU64("large", 1ULL << 32);
  writer.AddFloat("infinite", std::numeric_limits<float>::infinity());
  const std::string bytes = writer.Header();
  const auto file = Parse(bytes);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(Message(file->GetU32("none").status()), "key none: missing");
  EXPECT_EQ(*file->GetU32("none", 5), 5U);
  EXPECT_EQ(Message(file->GetU32("text").status()), "key text: string where an integer of at least 0 is wanted");
  EXPECT_EQ(Message(file->GetU32("text", 5).status()), "key text: string where an integer of at least 0 is wanted");
  EXPECT_EQ(Message(file->GetU32("large").status()), "key large: 4294967296 exceeds 4294967295");
  EXPECT_EQ(ReasonOf(file->GetFloat("infinite").status()), Reason::kModelInvalid);
  EXPECT_EQ(ReasonOf(file->GetBool("text", true).status()), Reason::kModelInvalid);
  EXPECT_EQ(ReasonOf(file->GetString("large").status()), Reason::kModelInvalid);
}

TEST(Gguf, PlacesTensorsInTheMap) {
  GgufWriter writer;
  writer.AddTensor("b", std::array<uint64_t, 2>{32, 3}, WeightType::kQ8_0);
  writer.AddTensor("a", std::array<uint64_t, 1>{5}, WeightType::kF32);
  std::string bytes = writer.Header();
  const size_t data = bytes.size();
  bytes.resize(data + writer.data_bytes());
  const auto file = Parse(bytes);
  ASSERT_TRUE(file.ok()) << Message(file.status());
  EXPECT_EQ(file->data_offset(), data);
  const TensorInfo* a = file->FindTensor("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->dimensions, 1U);
  EXPECT_EQ(a->weights(), 5U);
  EXPECT_EQ(a->bytes.size(), 20U);
  EXPECT_EQ(reinterpret_cast<const char*>(a->bytes.data()), bytes.data() + data + 128);
  const TensorInfo* b = file->FindTensor("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->bytes.size(), 3U * 34);
  EXPECT_EQ(file->FindTensor("c"), nullptr);
}

TEST(Gguf, ReadsVersionTwo) {
  GgufWriter writer(2);
  writer.AddU32("x", 1);
  const std::string bytes = writer.Header();
  const auto file = Parse(bytes);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->version(), 2U);
}

TEST(Gguf, HonoursTheFilesAlignment) {
  GgufWriter writer;
  writer.AddU32("general.alignment", 256);
  writer.AddRawTensor("t", std::array<uint64_t, 1>{1}, 0, 256);
  std::string bytes = writer.Header();
  bytes.resize((bytes.size() + 255) / 256 * 256 + 256 + 4);
  const auto file = Parse(bytes);
  ASSERT_TRUE(file.ok()) << Message(file.status());
  EXPECT_EQ(file->data_offset() % 256, 0U);
}

TEST(Gguf, SettlesTheLayoutOfType42ByTheOffsets) {
  for (const auto& [second_offset, end, type] : {std::tuple{uint64_t{96}, uint64_t{96 + 72}, WeightType::kQ2_0},
                                                 std::tuple{uint64_t{96}, uint64_t{96 + 68}, WeightType::kQ2_0Wide}}) {
    GgufWriter writer;
    const std::array<uint64_t, 1> row = {256};
    writer.AddRawTensor("a", row, 42, 0);
    writer.AddRawTensor("b", row, 42, second_offset);
    std::string bytes = writer.Header();
    bytes.resize(bytes.size() + end);
    const auto file = Parse(bytes);
    ASSERT_TRUE(file.ok()) << Message(file.status());
    EXPECT_EQ(file->tensors()[0].type, type);
  }
}

TEST(Gguf, RefusesType42WhoseLayoutIsAmbiguous) {
  GgufWriter writer;
  writer.AddRawTensor("a", std::array<uint64_t, 1>{256}, 42, 0);
  std::string bytes = writer.Header();
  bytes.resize(bytes.size() + 96);  // 72 and 68 bytes, both padded
  EXPECT_NE(Message(Parse(bytes).status()).find("the offsets fit both"), std::string::npos);
}

}  // namespace
}  // namespace bulkhead::engine
