#include "engine/gguf/gguf_value.h"

#include <limits>

namespace bulkhead::engine {
namespace {

template <typename T>
T Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

template <typename T>
std::optional<uint64_t> NonNegative(const std::byte* at) {
  const T value = Load<T>(at);
  if constexpr (std::numeric_limits<T>::is_signed) {
    if (value < 0) return std::nullopt;
  }
  return static_cast<uint64_t>(value);
}

std::optional<uint64_t> LoadUnsigned(GgufType type, const std::byte* at) {
  switch (type) {
    case GgufType::kU8:
      return NonNegative<uint8_t>(at);
    case GgufType::kI8:
      return NonNegative<int8_t>(at);
    case GgufType::kU16:
      return NonNegative<uint16_t>(at);
    case GgufType::kI16:
      return NonNegative<int16_t>(at);
    case GgufType::kU32:
      return NonNegative<uint32_t>(at);
    case GgufType::kI32:
      return NonNegative<int32_t>(at);
    case GgufType::kU64:
      return NonNegative<uint64_t>(at);
    case GgufType::kI64:
      return NonNegative<int64_t>(at);
    default:
      return std::nullopt;
  }
}

}  // namespace

std::string_view NameOf(GgufType type) {
  constexpr std::string_view kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                         "bool", "string", "array", "u64", "i64", "f64"};
  return kNames[static_cast<uint32_t>(type)];
}

uint32_t SizeOf(GgufType type) {
  constexpr uint32_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return kSizes[static_cast<uint32_t>(type)];
}

std::optional<uint64_t> GgufValue::AsUnsigned() const { return LoadUnsigned(type_, bytes_.data()); }

std::optional<int64_t> GgufValue::AsSigned() const {
  switch (type_) {
    case GgufType::kI8:
      return Load<int8_t>(bytes_.data());
    case GgufType::kI16:
      return Load<int16_t>(bytes_.data());
    case GgufType::kI32:
      return Load<int32_t>(bytes_.data());
    case GgufType::kI64:
      return Load<int64_t>(bytes_.data());
    default:
      break;
  }
  const std::optional<uint64_t> value = AsUnsigned();
  if (!value.has_value() || *value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
  return static_cast<int64_t>(*value);
}

std::optional<double> GgufValue::AsDouble() const {
  if (type_ == GgufType::kF32) return Load<float>(bytes_.data());
  if (type_ == GgufType::kF64) return Load<double>(bytes_.data());
  return std::nullopt;
}

std::optional<bool> GgufValue::AsBool() const {
  if (type_ != GgufType::kBool) return std::nullopt;
  return Load<uint8_t>(bytes_.data()) != 0;
}

std::optional<std::string_view> GgufValue::AsString() const {
  if (type_ != GgufType::kString) return std::nullopt;
  return std::string_view(reinterpret_cast<const char*>(bytes_.data()), bytes_.size());
}

std::optional<GgufStrings> GgufValue::AsStrings() const {
  if (type_ != GgufType::kArray || element_ != GgufType::kString) return std::nullopt;
  return GgufStrings(bytes_, count_);
}

std::optional<GgufNumbers<float>> GgufValue::AsFloats() const {
  if (type_ != GgufType::kArray || element_ != GgufType::kF32) return std::nullopt;
  return GgufNumbers<float>(bytes_);
}

std::optional<GgufNumbers<int32_t>> GgufValue::AsInts() const {
  if (type_ != GgufType::kArray || (element_ != GgufType::kI32 && element_ != GgufType::kU32)) return std::nullopt;
  return GgufNumbers<int32_t>(bytes_);
}

std::optional<uint64_t> GgufValue::UnsignedAt(uint64_t index) const {
  if (type_ != GgufType::kArray || index >= count_) return std::nullopt;
  return LoadUnsigned(element_, bytes_.data() + index * SizeOf(element_));
}

}  // namespace bulkhead::engine
