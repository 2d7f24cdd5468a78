#include "engine/gguf/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace bulkhead::engine {
namespace {

template <typename Items>
auto FindByName(const Items& items, std::span<const uint32_t> order, std::string_view name) -> decltype(items.data()) {
  const auto at = std::lower_bound(order.begin(), order.end(), name,
                                   [&](uint32_t index, std::string_view wanted) { return items[index].name < wanted; });
  if (at == order.end() || items[*at].name != name) return nullptr;
  return &items[*at];
}

absl::Status Missing(std::string_view key) { return Error(Reason::kModelInvalid, fmt::format("key {}: missing", key)); }

absl::Status WrongType(std::string_view key, const GgufValue& value, std::string_view wanted) {
  return Error(Reason::kModelInvalid, fmt::format("key {}: {} where {} is wanted", key, NameOf(value.type()), wanted));
}

}  // namespace

const GgufValue* GgufFile::Find(std::string_view key) const {
  const Key* found = FindByName(keys_, keys_by_name_, key);
  return found == nullptr ? nullptr : &found->value;
}

const TensorInfo* GgufFile::FindTensor(std::string_view name) const {
  return FindByName(tensors_, tensors_by_name_, name);
}

absl::StatusOr<uint32_t> GgufFile::GetU32(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return Missing(key);
  const std::optional<uint64_t> number = value->AsUnsigned();
  if (!number.has_value()) return WrongType(key, *value, "an integer of at least 0");
  if (*number > std::numeric_limits<uint32_t>::max()) {
    return Error(Reason::kModelInvalid, fmt::format("key {}: {} exceeds {}", key, *number, UINT32_MAX));
  }
  return static_cast<uint32_t>(*number);
}

absl::StatusOr<uint32_t> GgufFile::GetU32(std::string_view key, uint32_t fallback) const {
  if (Find(key) == nullptr) return fallback;
  return GetU32(key);
}

absl::StatusOr<float> GgufFile::GetFloat(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return Missing(key);
  const std::optional<double> number = value->AsDouble();
  if (!number.has_value()) return WrongType(key, *value, "a float");
  const auto narrowed = static_cast<float>(*number);
  if (!std::isfinite(narrowed)) {
    return Error(Reason::kModelInvalid, fmt::format("key {}: {} is not a finite number", key, *number));
  }
  return narrowed;
}

absl::StatusOr<float> GgufFile::GetFloat(std::string_view key, float fallback) const {
  if (Find(key) == nullptr) return fallback;
  return GetFloat(key);
}

absl::StatusOr<bool> GgufFile::GetBool(std::string_view key, bool fallback) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return fallback;
  const std::optional<bool> flag = value->AsBool();
  if (!flag.has_value()) return WrongType(key, *value, "a bool");
  return *flag;
}

absl::StatusOr<std::string_view> GgufFile::GetString(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return Missing(key);
  const std::optional<std::string_view> text = value->AsString();
  if (!text.has_value()) return WrongType(key, *value, "a string");
  return *text;
}

absl::StatusOr<std::string_view> GgufFile::GetString(std::string_view key, std::string_view fallback) const {
  if (Find(key) == nullptr) return fallback;
  return GetString(key);
}

}  // namespace bulkhead::engine
