// The one-pass parser behind GgufFile::Parse. Private to engine/gguf.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/status.h"
#include "engine/gguf/gguf.h"

namespace bulkhead::engine {

// Takes values off the front of the file; every Read answers nullopt where the file ends first.
class ByteCursor {
 public:
  explicit ByteCursor(std::span<const std::byte> file) : file_(file) {}

  template <typename T>
  std::optional<T> Read() {
    const auto bytes = Take(sizeof(T));
    if (!bytes.has_value()) return std::nullopt;
    T value;
    std::memcpy(&value, bytes->data(), sizeof(T));
    return value;
  }

  std::optional<std::span<const std::byte>> Take(uint64_t size) {
    if (size > file_.size() - at_) return std::nullopt;
    const auto bytes = file_.subspan(at_, size);
    at_ += size;
    return bytes;
  }

  [[nodiscard]] uint64_t position() const { return at_; }
  [[nodiscard]] uint64_t rest() const { return file_.size() - at_; }

 private:
  std::span<const std::byte> file_;
  size_t at_ = 0;
};

class GgufParser {
 public:
  explicit GgufParser(std::span<const std::byte> file) : file_(file), cursor_(file) {}
  absl::StatusOr<GgufFile> Parse();

 private:
  absl::Status ParseHeader();
  absl::Status ParseKeys();
  absl::Status ParseKey();
  absl::StatusOr<GgufValue> ParseValue(std::string_view key);
  absl::StatusOr<GgufValue> ParseArray(std::string_view key);
  absl::Status SkipStrings(std::string_view key, uint64_t count);
  absl::StatusOr<std::string_view> ParseString(std::string_view what);
  absl::StatusOr<GgufType> ParseType(std::string_view key);
  absl::Status ParseTensors();
  absl::Status ParseTensor();
  absl::Status IndexNames();
  absl::Status FindData();

  std::span<const std::byte> file_;
  ByteCursor cursor_;
  uint64_t tensor_count_ = 0;
  uint64_t key_count_ = 0;
  uint64_t alignment_ = 0;
  GgufFile result_;
};

// Checks every tensor's place in the data and sets its bytes: sizes of whole blocks, aligned, inside the file, none
// overlapping another. Settles which of the two layouts tensors of type number 42 have.
absl::Status PlaceTensors(std::span<TensorInfo> tensors, std::span<const std::byte> file, uint64_t data_offset,
                          uint64_t alignment);

}  // namespace bulkhead::engine
