#include "ipc/message.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message_lite.h>
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <cstdint>
#include <optional>

namespace bulkhead::ipc {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// Encoding: https://protobuf.dev/programming-guides/encoding
class ShapeWalker {
 public:
  explicit ShapeWalker(const ShapeLimits& limits) : limits_(limits) {}

  absl::Status Walk(const Descriptor& type, std::string_view bytes, uint32_t depth) {
    if (depth > limits_.max_depth) return Error(Reason::kProtocolError, TooDeep());
    while (!bytes.empty()) {
      const auto tag = TakeVarint(&bytes);
      if (!tag.has_value() || *tag > UINT32_MAX || (*tag >> 3) == 0) return Malformed("tag");
      const FieldDescriptor* field = type.FindFieldByNumber(static_cast<int>(*tag >> 3));
      RETURN_IF_ERROR(WalkField(field, static_cast<uint32_t>(*tag & 7), &bytes, depth));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status WalkField(const FieldDescriptor* field, uint32_t wire_type, std::string_view* bytes, uint32_t depth) {
    switch (wire_type) {
      case kVarint:
        if (!TakeVarint(bytes).has_value()) return Malformed("varint");
        return CountScalar(field);
      case kFixed64:
        if (!Skip(bytes, 8)) return Malformed("64-bit number");
        return CountScalar(field);
      case kFixed32:
        if (!Skip(bytes, 4)) return Malformed("32-bit number");
        return CountScalar(field);
      case kBytes:
        return WalkBytes(field, bytes, depth);
      default:
        return Malformed("wire type");
    }
  }

  absl::Status WalkBytes(const FieldDescriptor* field, std::string_view* bytes, uint32_t depth) {
    const auto size = TakeVarint(bytes);
    if (!size.has_value() || *size > bytes->size()) return Malformed("length");
    const std::string_view body = bytes->substr(0, *size);
    bytes->remove_prefix(body.size());
    if (field != nullptr && field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      RETURN_IF_ERROR(Count(&elements_, 1, limits_.max_elements, "elements"));
      return Walk(*field->message_type(), body, depth + 1);
    }
    if (field != nullptr && field->is_packable()) {
      return Count(&numbers_, PackedNumbers(*field, body), limits_.max_numbers, "numbers");
    }
    return Count(&elements_, 1, limits_.max_elements, "elements");
  }

  // A singular number costs nothing beyond its message.
  absl::Status CountScalar(const FieldDescriptor* field) {
    if (field == nullptr) return Count(&elements_, 1, limits_.max_elements, "elements");
    if (field->is_repeated()) return Count(&numbers_, 1, limits_.max_numbers, "numbers");
    return absl::OkStatus();
  }

  static uint64_t PackedNumbers(const FieldDescriptor& field, std::string_view body) {
    switch (field.type()) {
      case FieldDescriptor::TYPE_DOUBLE:
      case FieldDescriptor::TYPE_FIXED64:
      case FieldDescriptor::TYPE_SFIXED64:
        return body.size() / 8;
      case FieldDescriptor::TYPE_FLOAT:
      case FieldDescriptor::TYPE_FIXED32:
      case FieldDescriptor::TYPE_SFIXED32:
        return body.size() / 4;
      default:
        return static_cast<uint64_t>(std::count_if(body.begin(), body.end(), [](char c) { return (c & 0x80) == 0; }));
    }
  }

  static std::optional<uint64_t> TakeVarint(std::string_view* bytes) {
    uint64_t value = 0;
    for (size_t i = 0; i < 10 && i < bytes->size(); ++i) {
      const auto byte = static_cast<unsigned char>((*bytes)[i]);
      value |= static_cast<uint64_t>(byte & 0x7f) << (7 * i);
      if ((byte & 0x80) == 0) {
        bytes->remove_prefix(i + 1);
        return value;
      }
    }
    return std::nullopt;
  }

  static bool Skip(std::string_view* bytes, size_t size) {
    if (bytes->size() < size) return false;
    bytes->remove_prefix(size);
    return true;
  }

  static absl::Status Count(uint64_t* counter, uint64_t by, uint64_t limit, const char* what) {
    *counter += by;
    if (*counter <= limit) return absl::OkStatus();
    return Error(Reason::kProtocolError, fmt::format("message: more than {} {}", limit, what));
  }

  static absl::Status Malformed(const char* what) {
    return Error(Reason::kProtocolError, fmt::format("message: malformed {}", what));
  }

  [[nodiscard]] std::string TooDeep() const {
    return fmt::format("message: nested deeper than {} levels", limits_.max_depth);
  }

  const ShapeLimits limits_;
  uint64_t elements_ = 0;
  uint64_t numbers_ = 0;
};

}  // namespace

absl::Status CheckShape(const Descriptor& type, std::string_view bytes, const ShapeLimits& limits) {
  return ShapeWalker(limits).Walk(type, bytes, 1);
}

absl::Status ParseInto(google::protobuf::MessageLite& message, std::string_view bytes) {
  // protobuf writes a line to stderr for text that is not UTF-8; the status says it, and a peer must not fill logs.
  [[maybe_unused]] static const auto previous = google::protobuf::SetLogHandler(nullptr);
  if (bytes.size() > kMaxDaemonFrame || !message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Error(Reason::kProtocolError, fmt::format("message: {} bytes do not parse", bytes.size()));
  }
  return absl::OkStatus();
}

}  // namespace bulkhead::ipc
