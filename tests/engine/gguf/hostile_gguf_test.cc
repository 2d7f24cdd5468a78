// Every attack shape of the format: each file here must be refused by name, without a crash and without memory.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "engine/gguf/gguf.h"
#include "tools/make_model/gguf_writer.h"

namespace bulkhead::engine {
namespace {

using tools::AppendRaw;
using tools::AppendString;
using tools::GgufWriter;

absl::Status StatusOfParsing(const std::string& bytes) {
  // A copy on the heap of just that size, so that a sanitizer sees one byte too far.
  const std::vector<char> exact(bytes.begin(), bytes.end());
  return GgufFile::Parse(std::as_bytes(std::span(exact))).status();
}

void ExpectInvalid(const std::string& bytes, std::string_view said) {
  const absl::Status status = StatusOfParsing(bytes);
  EXPECT_EQ(ReasonOf(status), Reason::kModelInvalid);
  EXPECT_NE(Message(status).find(said), std::string::npos) << Message(status);
}

std::string GoodFile() {
  GgufWriter writer;
  writer.AddString("general.architecture", "llama");
  writer.AddStrings("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"});
  writer.AddFloats("tokenizer.ggml.scores", std::vector<float>{0, 1});
  writer.AddTensor("t", std::array<uint64_t, 2>{32, 2}, WeightType::kQ8_0);
  writer.AddTensor("u", std::array<uint64_t, 1>{4}, WeightType::kF32);
  std::string bytes = writer.Header();
  bytes.resize(bytes.size() + writer.data_bytes());
  return bytes;
}

std::string WithTensor(std::initializer_list<uint64_t> dims, uint32_t type, uint64_t offset, size_t data = 64) {
  GgufWriter writer;
  writer.AddRawTensor("t", std::vector<uint64_t>(dims), type, offset);
  std::string bytes = writer.Header();
  bytes.resize(bytes.size() + data);
  return bytes;
}

TEST(HostileGguf, CutOffAnywhereIsRefused) {
  const std::string good = GoodFile();
  ASSERT_TRUE(StatusOfParsing(good).ok());
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_EQ(ReasonOf(StatusOfParsing(good.substr(0, size))), Reason::kModelInvalid) << size;
  }
}

TEST(HostileGguf, AnyByteChangedNeverCrashes) {
  const std::string good = GoodFile();
  for (size_t at = 0; at < good.size(); ++at) {
    for (const unsigned char value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
      std::string bytes = good;
      bytes[at] = static_cast<char>(value);
      (void)StatusOfParsing(bytes);
    }
  }
}

TEST(HostileGguf, OtherMagicIsRefused) { ExpectInvalid("GGML" + GoodFile().substr(4), "does not begin with"); }

TEST(HostileGguf, OtherVersionsAndByteOrdersAreUnsupported) {
  for (const uint32_t version : {0U, 1U, 4U, 0x03000000U}) {
    const absl::Status status = StatusOfParsing(GgufWriter(version).Header());
    EXPECT_EQ(ReasonOf(status), Reason::kModelUnsupported) << version;
  }
}

TEST(HostileGguf, CountsBeyondTheFileAreRefused) {
  for (const uint64_t count : {uint64_t{1}, uint64_t{60'000}, ~uint64_t{0}}) {
    GgufWriter keys;
    keys.OverrideCounts(0, count);
    EXPECT_EQ(ReasonOf(StatusOfParsing(keys.Header())), Reason::kModelInvalid) << count;
    GgufWriter tensors;
    tensors.OverrideCounts(count, 0);
    EXPECT_EQ(ReasonOf(StatusOfParsing(tensors.Header())), Reason::kModelInvalid) << count;
  }
}

TEST(HostileGguf, StringLengthsBeyondTheFileAreRefused) {
  for (const uint64_t length : {uint64_t{1000}, ~uint64_t{0}, ~uint64_t{0} - 7}) {
    std::string value;
    AppendRaw(value, length);
    GgufWriter writer;
    writer.AddRaw("k", 8, value + "abc");
    ExpectInvalid(writer.Header(), "exceeds the file's remaining");
  }
}

TEST(HostileGguf, ArrayCountsBeyondTheFileAreRefused) {
  // 2^62 elements of 4 bytes make a product that wraps to 0.
  for (const uint32_t element : {4U, 6U, 8U, 0U}) {
    for (const uint64_t count : {uint64_t{1} << 62, ~uint64_t{0}, uint64_t{100'000}}) {
      std::string value;
      AppendRaw(value, element);
      AppendRaw(value, count);
      GgufWriter writer;
      writer.AddRaw("k", 9, value);
      ExpectInvalid(writer.Header(), "exceed the file's remaining");
    }
  }
}

TEST(HostileGguf, NestedArraysAreRefused) {
  std::string value;
  for (int depth = 0; depth < 1000; ++depth) {
    AppendRaw<uint32_t>(value, 9);
    AppendRaw<uint64_t>(value, 1);
  }
  GgufWriter writer;
  writer.AddRaw("k", 9, value);
  ExpectInvalid(writer.Header(), "an array of arrays");
}

TEST(HostileGguf, UnknownValueTypesAreRefused) {
  GgufWriter writer;
  writer.AddRaw("k", 13, "abcd");
  ExpectInvalid(writer.Header(), "value type 13 does not exist");
}

TEST(HostileGguf, NamesThatAreEmptyOrThereTwiceAreRefused) {
  GgufWriter empty;
  empty.AddU32("", 1);
  ExpectInvalid(empty.Header(), "name: 0 bytes");
  GgufWriter twice;
  twice.AddU32("a", 1);
  twice.AddU32("a", 2);
  ExpectInvalid(twice.Header(), "key a: there twice");
  GgufWriter tensors;
  const std::array<uint64_t, 1> one = {1};
  tensors.AddTensor("t", one, WeightType::kF32);
  tensors.AddTensor("t", one, WeightType::kF32);
  ExpectInvalid(tensors.Header() + std::string(64, '\0'), "tensor t: there twice");
}

TEST(HostileGguf, NamesInMessagesHoldNoControlCharacters) {
  GgufWriter writer;
  writer.AddU32("a\x1b[2J", 1);
  writer.AddU32("a\x1b[2J", 1);
  ExpectInvalid(writer.Header(), "key a?[2J: there twice");
}

TEST(HostileGguf, AlignmentsThatAreNoPowerOfTwoAreRefused) {
  for (const uint32_t alignment : {0U, 3U, 48U, 1U << 31, ~0U}) {
    GgufWriter writer;
    writer.AddU32("general.alignment", alignment);
    ExpectInvalid(writer.Header(), "general.alignment");
  }
  GgufWriter text;
  text.AddString("general.alignment", "32");
  ExpectInvalid(text.Header(), "general.alignment");
}

TEST(HostileGguf, DimensionsThatAreZeroTooManyOrWrapAreRefused) {
  ExpectInvalid(WithTensor({}, 0, 0), "0 dimensions");
  ExpectInvalid(WithTensor({1, 1, 1, 1, 1}, 0, 0), "5 dimensions");
  ExpectInvalid(WithTensor({4, 0}, 0, 0), "dimension 1 is 0");
  ExpectInvalid(WithTensor({uint64_t{1} << 32, uint64_t{1} << 32}, 0, 0), "exceed 64 bits");
  ExpectInvalid(WithTensor({uint64_t{1} << 31, uint64_t{1} << 31, 4}, 0, 0), "exceed 64 bits");
  ExpectInvalid(WithTensor({uint64_t{1} << 63}, 0, 0), "no whole blocks");
}

TEST(HostileGguf, RowsThatAreNoWholeBlocksAreRefused) {
  ExpectInvalid(WithTensor({16, 2}, 8, 0), "no whole blocks of 32");
}

TEST(HostileGguf, UnknownWeightTypesAreNamed) {
  for (const uint32_t type : {9U, 44U, 0x1002aU, ~0U}) {
    const absl::Status status = StatusOfParsing(WithTensor({32}, type, 0));
    EXPECT_EQ(ReasonOf(status), Reason::kModelUnsupported);
    EXPECT_NE(Message(status).find("of tensor t"), std::string::npos) << Message(status);
  }
}

TEST(HostileGguf, OffsetsPastTheEndOrUnalignedAreRefused) {
  ExpectInvalid(WithTensor({16}, 0, 32), "offset 32 + 64 exceeds the data's 64 bytes");
  ExpectInvalid(WithTensor({16}, 0, uint64_t{1} << 40), "exceeds the data's 64 bytes");
  ExpectInvalid(WithTensor({16}, 0, ~uint64_t{31}), "exceeds the data's 64 bytes");
  ExpectInvalid(WithTensor({1}, 0, 4), "not a multiple of 32");
}

TEST(HostileGguf, OverlappingTensorsAreRefused) {
  GgufWriter writer;
  const std::array<uint64_t, 1> row = {16};
  writer.AddRawTensor("a", row, 0, 32);
  writer.AddRawTensor("b", row, 0, 0);
  ExpectInvalid(writer.Header() + std::string(96, '\0'), "tensor a: offset 32 overlaps b, which ends at 64");
}

}  // namespace
}  // namespace bulkhead::engine
