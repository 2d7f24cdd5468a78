// Writes a GGUF file (version 3), or any part of one: keys and tensor infos are collected, then Header() gives the
// bytes up to the data's start. Also used by tests to write files that are wrong on purpose, so nothing is checked. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/gguf/gguf_value.h"
#include "engine/gguf/weight_type.h"

namespace bulkhead::tools {

class GgufWriter {
 public:
  explicit GgufWriter(uint32_t version = 3) : version_(version) {}

  void AddU32(std::string_view key, uint32_t value);
  void AddU64(std::string_view key, uint64_t value);
  void AddI32(std::string_view key, int32_t value);
  void AddFloat(std::string_view key, float value);
  void AddBool(std::string_view key, bool value);
  void AddString(std::string_view key, std::string_view value);
  void AddStrings(std::string_view key, std::span<const std::string> values);
  void AddFloats(std::string_view key, std::span<const float> values);
  void AddInts(std::string_view key, std::span<const int32_t> values);
  // A key whose value is `value_bytes` as they are.
  void AddRaw(std::string_view key, uint32_t type, std::string_view value_bytes);

  // A tensor placed behind the ones before it, aligned. Answers its offset from the data's start.
  uint64_t AddTensor(std::string_view name, std::span<const uint64_t> dims, engine::WeightType type);
  // A tensor info of any numbers; it takes no room in the data.
  void AddRawTensor(std::string_view name, std::span<const uint64_t> dims, uint32_t type, uint64_t offset);

  // Instead of the true ones.
  void OverrideCounts(uint64_t tensors, uint64_t keys);

  // Everything before the data, padded to the alignment (32).
  [[nodiscard]] std::string Header() const;
  // Of all tensors added, padding between them included.
  [[nodiscard]] uint64_t data_bytes() const { return data_bytes_; }

  static constexpr uint64_t kAlignment = 32;

 private:
  void BeginKey(std::string_view key, engine::GgufType type);
  void BeginArray(std::string_view key, engine::GgufType element, uint64_t count);

  uint32_t version_;
  uint64_t tensor_count_ = 0;
  uint64_t key_count_ = 0;
  uint64_t data_bytes_ = 0;
  std::string keys_;
  std::string tensors_;
};

// Appends `value`'s bytes.
template <typename T>
void AppendRaw(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

// Appends a u64 length and the bytes.
void AppendString(std::string& out, std::string_view text);

}  // namespace bulkhead::tools
