// Headers whose numbers make no sense, or ask for what we cannot run, are refused by name before anything is computed.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>

#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "tools/make_model/write_model.h"

namespace bulkhead::engine {
namespace {

std::string WholeFile() {
  std::string file;
  const absl::Status status =
      tools::WriteModel({.architecture = "llama",
                         .type = WeightType::kF32,
                         .layers = 1,
                         .embedding = 64,
                         .feed_forward = 64,
                         .heads = 4,
                         .kv_heads = 2,
                         .head = 16,
                         .vocabulary = 320},
                        [&file](std::span<const std::byte> bytes) {
                          file.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
                          return absl::OkStatus();
                        });
  EXPECT_TRUE(status.ok()) << Message(status);
  return file;
}

// Overwrites the 4-byte value of `key`; the file's strings are their length, their bytes, then the value's type.
template <typename T>
void Patch(std::string& file, const std::string& key, T value) {
  static_assert(sizeof(T) == sizeof(uint32_t));
  const size_t at = file.find(key);
  ASSERT_NE(at, std::string::npos) << key;
  std::memcpy(file.data() + at + key.size() + sizeof(uint32_t), &value, sizeof value);
}

absl::Status LoadStatus(const std::string& file) {
  const auto parsed = GgufFile::Parse(std::as_bytes(std::span(file)));
  if (!parsed.ok()) return parsed.status();
  return Model::Load(*parsed).status();
}

struct WrongNumber {
  const char* key;
  uint32_t value;
};

TEST(HostileHeader, AnUnchangedFileLoads) { EXPECT_TRUE(LoadStatus(WholeFile()).ok()); }

TEST(HostileHeader, WrongNumbersAreRefused) {
  const WrongNumber wrong[] = {
      {"llama.block_count", 0},
      {"llama.block_count", 2},
      {"llama.block_count", 1'000'000},
      {"llama.embedding_length", 0},
      {"llama.embedding_length", 65},
      {"llama.embedding_length", UINT32_MAX},
      {"llama.feed_forward_length", 0},
      {"llama.feed_forward_length", 128},
      {"llama.context_length", 0},
      {"llama.attention.head_count", 0},
      {"llama.attention.head_count", 3},
      {"llama.attention.head_count", UINT32_MAX},
      {"llama.attention.head_count_kv", 0},
      {"llama.attention.head_count_kv", 4},
      {"llama.attention.key_length", 0},
      {"llama.attention.key_length", 1u << 30},
      {"llama.rope.dimension_count", 0},
      {"llama.rope.dimension_count", 7},
      {"llama.rope.dimension_count", 32},
  };
  for (const WrongNumber& number : wrong) {
    std::string file = WholeFile();
    if (file.find(number.key) == std::string::npos) continue;
    // "head_count" is also the beginning of "head_count_kv": the key's own length tells them apart.
    std::string key(sizeof(uint64_t), '\0');
    const uint64_t length = std::strlen(number.key);
    std::memcpy(key.data(), &length, sizeof length);
    Patch(file, key + number.key, number.value);
    const absl::Status status = LoadStatus(file);
    const bool refused = ReasonOf(status) == Reason::kModelInvalid || ReasonOf(status) == Reason::kModelUnsupported;
    EXPECT_TRUE(refused) << number.key << " = " << number.value << ": " << Message(status);
  }
}

std::string WholeHybrid(const std::string& architecture) {
  std::string file;
  const absl::Status status =
      tools::WriteModel({.architecture = architecture,
                         .type = WeightType::kF32,
                         .layers = 2,
                         .embedding = 64,
                         .feed_forward = 64,
                         .heads = 4,
                         .kv_heads = 2,
                         .head = 16,
                         .attention_every = 2,
                         .inner = 64,
                         .state = 16,
                         .experts = architecture == "lfm2" ? 0U : 4U,
                         .vocabulary = 320},
                        [&file](std::span<const std::byte> bytes) {
                          file.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
                          return absl::OkStatus();
                        });
  EXPECT_TRUE(status.ok()) << Message(status);
  return file;
}

TEST(HostileHeader, WrongNumbersOfLayersWithStateAreRefused) {
  const WrongNumber wrong[] = {
      {"qwen3next.ssm.conv_kernel", 0},
      {"qwen3next.ssm.conv_kernel", 5},
      {"qwen3next.ssm.conv_kernel", UINT32_MAX},
      {"qwen3next.ssm.inner_size", 0},
      {"qwen3next.ssm.inner_size", 65},
      {"qwen3next.ssm.inner_size", UINT32_MAX},
      {"qwen3next.ssm.state_size", 0},
      {"qwen3next.ssm.state_size", 17},
      {"qwen3next.ssm.state_size", 32},
      {"qwen3next.ssm.state_size", UINT32_MAX},
      {"qwen3next.ssm.time_step_rank", 0},
      {"qwen3next.ssm.time_step_rank", 3},
      {"qwen3next.ssm.group_count", 0},
      {"qwen3next.ssm.group_count", 3},
      {"qwen3next.ssm.group_count", UINT32_MAX},
      {"qwen3next.full_attention_interval", 0},
      {"qwen3next.full_attention_interval", 1},
      {"qwen3next.expert_count", 5},
      {"qwen3next.expert_count", UINT32_MAX},
      {"qwen3next.expert_used_count", 0},
      {"qwen3next.expert_used_count", 5},
      {"qwen3next.expert_feed_forward_length", 0},
      {"qwen3next.expert_shared_feed_forward_length", 63},
      {"lfm2.shortconv.l_cache", 0},
      {"lfm2.shortconv.l_cache", 5},
      {"lfm2.shortconv.l_cache", 1U << 20},
  };
  for (const WrongNumber& number : wrong) {
    const std::string key = number.key;
    std::string file = WholeHybrid(key.substr(0, key.find('.')));
    EXPECT_TRUE(LoadStatus(file).ok()) << Message(LoadStatus(file));
    Patch(file, number.key, number.value);
    const absl::Status status = LoadStatus(file);
    EXPECT_TRUE(ReasonOf(status) == Reason::kModelInvalid || ReasonOf(status) == Reason::kModelUnsupported)
        << number.key << " = " << number.value << ": " << Message(status);
  }
}

TEST(HostileHeader, FrequenciesAndEpsilonsMustBePositiveNumbers) {
  for (const char* key : {"llama.rope.freq_base", "llama.attention.layer_norm_rms_epsilon"}) {
    for (const float value :
         {0.0F, -1.0F, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      std::string file = WholeFile();
      Patch(file, key, value);
      EXPECT_EQ(ReasonOf(LoadStatus(file)), Reason::kModelInvalid) << key << " = " << value;
    }
  }
}

TEST(HostileHeader, AnUnknownArchitectureIsNamed) {
  std::string file = WholeFile();
  const std::string key = "general.architecture";
  const size_t value = file.find(key) + key.size() + sizeof(uint32_t) + sizeof(uint64_t);
  ASSERT_EQ(file.substr(value, 5), "llama");
  file.replace(value, 5, "abaci");
  const absl::Status status = LoadStatus(file);
  EXPECT_EQ(ReasonOf(status), Reason::kModelUnsupported);
  EXPECT_NE(Message(status).find("abaci"), std::string::npos);
}

TEST(HostileHeader, ATensorNobodyUnderstandsIsNotPassedOver) {
  std::string file = WholeFile();
  const size_t at = file.find("blk.0.ffn_norm.weight");
  ASSERT_NE(at, std::string::npos);
  file.replace(at, 21, "blk.0.ffn_nort.weight");
  EXPECT_NE(Message(LoadStatus(file)).find("blk.0.ffn_nor"), std::string::npos);
}

}  // namespace
}  // namespace bulkhead::engine
