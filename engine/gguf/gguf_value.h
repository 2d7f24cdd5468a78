// One metadata value of a GGUF file: a typed view into the mapped bytes. Copied freely; valid as long as the map is.
// A value is only made by the parser, which has checked every length against the file, so nothing here can read out of
// bounds. Thread-safe: immutable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

namespace bulkhead::engine {

enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

std::string_view NameOf(GgufType type);

// Bytes of a value of fixed size; 0 for strings and arrays.
uint32_t SizeOf(GgufType type);

// The strings of an array, walked in order without an index: u64 length + bytes each.
class GgufStrings {
 public:
  class Iterator {
   public:
    using value_type = std::string_view;
    using difference_type = std::ptrdiff_t;

    Iterator() = default;
    explicit Iterator(const std::byte* at) : at_(at) {}
    std::string_view operator*() const { return {reinterpret_cast<const char*>(at_) + sizeof(uint64_t), Length()}; }
    Iterator& operator++() {
      at_ += sizeof(uint64_t) + Length();
      return *this;
    }
    Iterator operator++(int) {
      Iterator before = *this;
      ++*this;
      return before;
    }
    bool operator==(const Iterator& other) const = default;

   private:
    [[nodiscard]] uint64_t Length() const {
      uint64_t length;
      std::memcpy(&length, at_, sizeof(length));
      return length;
    }
    const std::byte* at_ = nullptr;
  };

  GgufStrings(std::span<const std::byte> bytes, uint64_t count) : bytes_(bytes), count_(count) {}
  [[nodiscard]] Iterator begin() const { return Iterator(bytes_.data()); }
  [[nodiscard]] Iterator end() const { return Iterator(bytes_.data() + bytes_.size()); }
  [[nodiscard]] uint64_t size() const { return count_; }

 private:
  std::span<const std::byte> bytes_;
  uint64_t count_;
};

// Numbers of one array, which may stand unaligned in the file.
template <typename T>
class GgufNumbers {
 public:
  explicit GgufNumbers(std::span<const std::byte> bytes) : bytes_(bytes) {}
  [[nodiscard]] uint64_t size() const { return bytes_.size() / sizeof(T); }
  T operator[](uint64_t index) const {
    T value;
    std::memcpy(&value, bytes_.data() + index * sizeof(T), sizeof(T));
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
};

class GgufValue {
 public:
  // For the parser. `bytes` are the value's own; of an array, its elements' without type and count.
  GgufValue(GgufType type, GgufType element, uint64_t count, std::span<const std::byte> bytes)
      : type_(type), element_(element), count_(count), bytes_(bytes) {}

  [[nodiscard]] GgufType type() const { return type_; }
  // Of an array: the type of its elements and how many there are. Of anything else: its own type and 1.
  [[nodiscard]] GgufType element() const { return element_; }
  [[nodiscard]] uint64_t count() const { return count_; }

  // Each answers nullopt where the value is of another kind. AsUnsigned and AsSigned take every integer type whose
  // value fits, AsDouble both float types.
  [[nodiscard]] std::optional<uint64_t> AsUnsigned() const;
  [[nodiscard]] std::optional<int64_t> AsSigned() const;
  [[nodiscard]] std::optional<double> AsDouble() const;
  [[nodiscard]] std::optional<bool> AsBool() const;
  [[nodiscard]] std::optional<std::string_view> AsString() const;
  [[nodiscard]] std::optional<GgufStrings> AsStrings() const;
  [[nodiscard]] std::optional<GgufNumbers<float>> AsFloats() const;
  [[nodiscard]] std::optional<GgufNumbers<int32_t>> AsInts() const;  // i32 or u32 elements
  // Element `index` (< count()) of an array of integers of any width; nullopt as AsUnsigned.
  [[nodiscard]] std::optional<uint64_t> UnsignedAt(uint64_t index) const;

 private:
  GgufType type_;
  GgufType element_;
  uint64_t count_;
  std::span<const std::byte> bytes_;
};

}  // namespace bulkhead::engine
