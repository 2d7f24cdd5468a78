#include "engine/gguf/gguf_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/checked.h"

namespace bulkhead::engine {
namespace {

// Far above any real file (thousands of tensors, a few dozen keys), and low enough that the tables stay small.
constexpr uint64_t kMaxTensors = 1 << 17;
constexpr uint64_t kMaxKeys = 1 << 16;
constexpr uint64_t kMaxNameBytes = 1 << 10;
constexpr uint64_t kMaxAlignment = 1 << 20;
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint32_t kMaxDimensions = 4;

absl::Status Invalid(std::string_view message) { return Error(Reason::kModelInvalid, message); }

template <typename Items>
absl::Status SortNames(const Items& items, std::string_view what, std::vector<uint32_t>& order) {
  order.resize(items.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return items[a].name < items[b].name; });
  const auto twice = std::adjacent_find(order.begin(), order.end(),
                                        [&](uint32_t a, uint32_t b) { return items[a].name == items[b].name; });
  if (twice == order.end()) return absl::OkStatus();
  return Invalid(fmt::format("{} {}: there twice", what, Printable(items[*twice].name)));
}

}  // namespace

std::string Printable(std::string_view name) {
  std::string shown(name.substr(0, 80));
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = '?';
  }
  return shown;
}

absl::StatusOr<GgufFile> GgufFile::Parse(std::span<const std::byte> file) { return GgufParser(file).Parse(); }

absl::StatusOr<GgufFile> GgufParser::Parse() {
  result_.file_bytes_ = file_.size();
  RETURN_IF_ERROR(ParseHeader());
  RETURN_IF_ERROR(ParseKeys());
  RETURN_IF_ERROR(ParseTensors());
  RETURN_IF_ERROR(IndexNames());
  RETURN_IF_ERROR(FindData());
  RETURN_IF_ERROR(PlaceTensors(result_.tensors_, file_, result_.data_offset_, alignment_));
  return std::move(result_);
}

absl::Status GgufParser::ParseHeader() {
  constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
  if (cursor_.Read<uint32_t>() != kMagic) return Invalid("not a GGUF file: it does not begin with \"GGUF\"");
  const auto version = cursor_.Read<uint32_t>();
  const auto tensors = cursor_.Read<uint64_t>();
  const auto keys = cursor_.Read<uint64_t>();
  if (!keys.has_value()) return Invalid(fmt::format("header: cut off, the file has {} bytes", file_.size()));
  if (*version == 0x02000000 || *version == 0x03000000) {
    return Error(Reason::kModelUnsupported, "GGUF file: big endian");
  }
  if (*version != 2 && *version != 3) {
    return Error(Reason::kModelUnsupported, fmt::format("GGUF version {}: only 2 and 3 are read", *version));
  }
  if (*tensors > kMaxTensors) return Invalid(fmt::format("tensor count: {} exceeds {}", *tensors, kMaxTensors));
  if (*keys > kMaxKeys) return Invalid(fmt::format("key count: {} exceeds {}", *keys, kMaxKeys));
  result_.version_ = *version;
  tensor_count_ = *tensors;
  key_count_ = *keys;
  return absl::OkStatus();
}

absl::StatusOr<std::string_view> GgufParser::ParseString(std::string_view what) {
  const auto length = cursor_.Read<uint64_t>();
  if (!length.has_value()) return Invalid(fmt::format("{}: cut off at byte {}", what, cursor_.position()));
  const uint64_t rest = cursor_.rest();
  const auto bytes = cursor_.Take(*length);
  if (!bytes.has_value()) {
    return Invalid(fmt::format("{}: length {} exceeds the file's remaining {} bytes", what, *length, rest));
  }
  return std::string_view(reinterpret_cast<const char*>(bytes->data()), bytes->size());
}

absl::Status GgufParser::ParseKeys() {
  for (uint64_t i = 0; i < key_count_; ++i) {
    if (absl::Status status = ParseKey(); !status.ok()) {
      return Invalid(fmt::format("key {} of {}: {}", i + 1, key_count_, Message(status)));
    }
  }
  return absl::OkStatus();
}

absl::Status GgufParser::ParseKey() {
  ASSIGN_OR_RETURN(const std::string_view name, ParseString("name"));
  if (name.empty() || name.size() > kMaxNameBytes) {
    return Invalid(fmt::format("name: {} bytes, between 1 and {} are wanted", name.size(), kMaxNameBytes));
  }
  ASSIGN_OR_RETURN(const GgufValue value, ParseValue(name));
  result_.keys_.push_back({name, value});
  return absl::OkStatus();
}

absl::StatusOr<GgufType> GgufParser::ParseType(std::string_view key) {
  const auto number = cursor_.Read<uint32_t>();
  if (!number.has_value()) return Invalid(fmt::format("{}: cut off before its type", Printable(key)));
  if (*number > static_cast<uint32_t>(GgufType::kF64)) {
    return Invalid(fmt::format("{}: value type {} does not exist", Printable(key), *number));
  }
  return static_cast<GgufType>(*number);
}

absl::StatusOr<GgufValue> GgufParser::ParseValue(std::string_view key) {
  ASSIGN_OR_RETURN(const GgufType type, ParseType(key));
  if (type == GgufType::kArray) return ParseArray(key);
  if (type == GgufType::kString) {
    ASSIGN_OR_RETURN(const std::string_view text, ParseString(Printable(key)));
    return GgufValue(type, type, 1, std::as_bytes(std::span(text)));
  }
  const auto bytes = cursor_.Take(SizeOf(type));
  if (!bytes.has_value()) return Invalid(fmt::format("{}: cut off", Printable(key)));
  return GgufValue(type, type, 1, *bytes);
}

absl::StatusOr<GgufValue> GgufParser::ParseArray(std::string_view key) {
  ASSIGN_OR_RETURN(const GgufType element, ParseType(key));
  const auto count = cursor_.Read<uint64_t>();
  if (!count.has_value()) return Invalid(fmt::format("{}: cut off before its count", Printable(key)));
  if (element == GgufType::kArray) return Invalid(fmt::format("{}: an array of arrays", Printable(key)));
  const uint64_t start = cursor_.position();
  if (element == GgufType::kString) {
    RETURN_IF_ERROR(SkipStrings(key, *count));
  } else {
    const std::optional<uint64_t> size = CheckedMul<uint64_t>(*count, SizeOf(element));
    const uint64_t rest = cursor_.rest();
    if (!size.has_value() || !cursor_.Take(*size).has_value()) {
      return Invalid(fmt::format("{}: {} elements of type {} exceed the file's remaining {} bytes", Printable(key),
                                 *count, NameOf(element), rest));
    }
  }
  return GgufValue(GgufType::kArray, element, *count, file_.subspan(start, cursor_.position() - start));
}

absl::Status GgufParser::SkipStrings(std::string_view key, uint64_t count) {
  if (count > cursor_.rest() / sizeof(uint64_t)) {
    return Invalid(
        fmt::format("{}: {} strings exceed the file's remaining {} bytes", Printable(key), count, cursor_.rest()));
  }
  for (uint64_t i = 0; i < count; ++i) {
    const auto length = cursor_.Read<uint64_t>();
    if (!length.has_value() || !cursor_.Take(*length).has_value()) {
      return Invalid(
          fmt::format("{}: string {} of {} exceeds the file's {} bytes", Printable(key), i, count, file_.size()));
    }
  }
  return absl::OkStatus();
}

absl::Status GgufParser::ParseTensors() {
  for (uint64_t i = 0; i < tensor_count_; ++i) {
    if (absl::Status status = ParseTensor(); !status.ok()) {
      return Error(ReasonOf(status), fmt::format("tensor {} of {}: {}", i + 1, tensor_count_, Message(status)));
    }
  }
  return absl::OkStatus();
}

absl::Status GgufParser::ParseTensor() {
  TensorInfo tensor;
  ASSIGN_OR_RETURN(tensor.name, ParseString("name"));
  if (tensor.name.empty() || tensor.name.size() > kMaxNameBytes) {
    return Invalid(fmt::format("name: {} bytes, between 1 and {} are wanted", tensor.name.size(), kMaxNameBytes));
  }
  const auto dimensions = cursor_.Read<uint32_t>();
  if (!dimensions.has_value()) return Invalid("cut off before its dimensions");
  if (*dimensions < 1 || *dimensions > kMaxDimensions) {
    return Invalid(fmt::format("{}: {} dimensions, between 1 and {} are wanted", Printable(tensor.name), *dimensions,
                               kMaxDimensions));
  }
  tensor.dimensions = *dimensions;
  uint64_t weights = 1;
  for (uint32_t d = 0; d < *dimensions; ++d) {
    const auto size = cursor_.Read<uint64_t>();
    if (!size.has_value()) return Invalid(fmt::format("{}: cut off in its dimensions", Printable(tensor.name)));
    const auto product = CheckedMul<uint64_t>(weights, *size);
    if (*size == 0 || !product.has_value()) {
      return Invalid(fmt::format("{}: dimension {} is {}, which is 0 or makes the product exceed 64 bits",
                                 Printable(tensor.name), d, *size));
    }
    tensor.dims[d] = *size;
    weights = *product;
  }
  const auto type = cursor_.Read<uint32_t>();
  const auto offset = cursor_.Read<uint64_t>();
  if (!offset.has_value()) return Invalid(fmt::format("{}: cut off before its offset", Printable(tensor.name)));
  const WeightTypeInfo* info = *type > 0xffff ? nullptr : FindWeightType(*type);
  if (info == nullptr) {
    return Error(Reason::kModelUnsupported,
                 fmt::format("weight type number {} of tensor {}", *type, Printable(tensor.name)));
  }
  tensor.type = info->type;
  tensor.offset = *offset;
  result_.tensors_.push_back(tensor);
  return absl::OkStatus();
}

absl::Status GgufParser::IndexNames() {
  RETURN_IF_ERROR(SortNames(result_.keys_, "key", result_.keys_by_name_));
  return SortNames(result_.tensors_, "tensor", result_.tensors_by_name_);
}

absl::Status GgufParser::FindData() {
  ASSIGN_OR_RETURN(alignment_, result_.GetU32("general.alignment", kDefaultAlignment));
  if (!std::has_single_bit(alignment_) || alignment_ > kMaxAlignment) {
    return Invalid(fmt::format("general.alignment: {} is not a power of two up to {}", alignment_, kMaxAlignment));
  }
  // Cannot overflow: a file's size is far below 2^63.
  result_.data_offset_ = *CheckedAlignUp(cursor_.position(), alignment_);
  return absl::OkStatus();
}

}  // namespace bulkhead::engine
