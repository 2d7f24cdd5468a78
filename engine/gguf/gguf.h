// A GGUF model file (version 2 or 3, little endian) as typed views into its mapped bytes. Nothing in a file is trusted:
// every count, length, offset, dimension, alignment and type is checked against the bytes that are really there before
// it is used, and memory grows with bytes consumed, never by a declared number. Errors are kModelInvalid (the file is
// wrong) or kModelUnsupported (another version, byte order or weight type) and name the thing, the value and the limit.
//
// Ownership: everything points into the span given to Parse, which must outlive the GgufFile; a file truncated under
// its map raises SIGBUS on the next touch, which is the process's matter. Thread-safe once parsed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/gguf/gguf_value.h"
#include "engine/gguf/weight_type.h"

namespace bulkhead::engine {

// A name out of a file as a message may show it: cut, without control characters.
std::string Printable(std::string_view name);

struct TensorInfo {
  std::string_view name;
  uint32_t dimensions = 0;                      // 1 to 4
  std::array<uint64_t, 4> dims = {1, 1, 1, 1};  // dims[0] varies fastest; none is 0; those past `dimensions` are 1
  WeightType type = WeightType::kF32;
  uint64_t offset = 0;               // from the data's start
  std::span<const std::byte> bytes;  // the tensor's data, whole rows of blocks

  [[nodiscard]] uint64_t weights() const { return dims[0] * dims[1] * dims[2] * dims[3]; }  // checked by the parser
};

class GgufFile {
 public:
  static absl::StatusOr<GgufFile> Parse(std::span<const std::byte> file);

  [[nodiscard]] uint32_t version() const { return version_; }
  [[nodiscard]] uint64_t file_bytes() const { return file_bytes_; }
  [[nodiscard]] uint64_t data_offset() const { return data_offset_; }

  struct Key {
    std::string_view name;
    GgufValue value;
  };
  // In the file's order.
  [[nodiscard]] std::span<const Key> keys() const { return keys_; }
  [[nodiscard]] std::span<const TensorInfo> tensors() const { return tensors_; }

  // nullptr where there is none.
  [[nodiscard]] const GgufValue* Find(std::string_view key) const;
  [[nodiscard]] const TensorInfo* FindTensor(std::string_view name) const;

  // The value of a key. Without the key: kModelInvalid, or `fallback` in the second form. A value of another type, or
  // one that does not fit, is kModelInvalid in both.
  [[nodiscard]] absl::StatusOr<uint32_t> GetU32(std::string_view key) const;
  [[nodiscard]] absl::StatusOr<uint32_t> GetU32(std::string_view key, uint32_t fallback) const;
  [[nodiscard]] absl::StatusOr<float> GetFloat(std::string_view key) const;
  [[nodiscard]] absl::StatusOr<float> GetFloat(std::string_view key, float fallback) const;
  [[nodiscard]] absl::StatusOr<bool> GetBool(std::string_view key, bool fallback) const;
  [[nodiscard]] absl::StatusOr<std::string_view> GetString(std::string_view key) const;
  [[nodiscard]] absl::StatusOr<std::string_view> GetString(std::string_view key, std::string_view fallback) const;

 private:
  friend class GgufParser;
  GgufFile() = default;

  uint32_t version_ = 0;
  uint64_t file_bytes_ = 0;
  uint64_t data_offset_ = 0;
  std::vector<Key> keys_;
  std::vector<TensorInfo> tensors_;
  std::vector<uint32_t> keys_by_name_;     // indices, names ascending
  std::vector<uint32_t> tensors_by_name_;  // likewise
};

}  // namespace bulkhead::engine
