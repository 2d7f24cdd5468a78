#include "client/cli/json.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>

#include <cmath>

#include "client/cli/text.h"

namespace bulkhead::cli {
namespace {

using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

void AppendString(std::string_view text, std::string* out) {
  out->push_back('"');
  while (!text.empty()) {
    const size_t length = Utf8CharacterLength(text);
    const char c = text[0];
    if (length == 0) {
      *out += "\\ufffd";
      text.remove_prefix(1);
      continue;
    }
    if (c == '"' || c == '\\') {
      out->push_back('\\');
      out->push_back(c);
    } else if (c == '\n') {
      *out += "\\n";
    } else if (c == '\t') {
      *out += "\\t";
    } else if (c == '\r') {
      *out += "\\r";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      fmt::format_to(std::back_inserter(*out), "\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out->append(text.substr(0, length));
    }
    text.remove_prefix(length);
  }
  out->push_back('"');
}

template <typename Real>
void AppendReal(Real value, std::string* out) {
  if (std::isfinite(value)) {
    fmt::format_to(std::back_inserter(*out), "{}", value);
  } else {
    *out += "null";
  }
}

// FINISH_REASON_STOP of enum FinishReason is STOP; values of a nested enum such as Ack carry no prefix.
std::string_view ShortName(const EnumValueDescriptor& value) {
  std::string prefix;
  for (const char c : value.type()->name()) {
    if (c >= 'A' && c <= 'Z' && !prefix.empty()) prefix.push_back('_');
    prefix.push_back(c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c);
  }
  prefix.push_back('_');
  std::string_view name = value.name();
  if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  return name;
}

void AppendMessage(const Message& message, std::string_view event, std::string* out);

// One value of `field`: element `index` of a repeated field, or the value itself where index is -1.
void AppendValue(const Message& message, const FieldDescriptor& field, int index, std::string* out) {
  const Reflection& reflection = *message.GetReflection();
  const bool one = index < 0;
  const auto integer = [&](auto value) { fmt::format_to(std::back_inserter(*out), "{}", value); };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return integer(one ? reflection.GetInt32(message, &field) : reflection.GetRepeatedInt32(message, &field, index));
    case FieldDescriptor::CPPTYPE_INT64:
      return integer(one ? reflection.GetInt64(message, &field) : reflection.GetRepeatedInt64(message, &field, index));
    case FieldDescriptor::CPPTYPE_UINT32:
      return integer(one ? reflection.GetUInt32(message, &field)
                         : reflection.GetRepeatedUInt32(message, &field, index));
    case FieldDescriptor::CPPTYPE_UINT64:
      return integer(one ? reflection.GetUInt64(message, &field)
                         : reflection.GetRepeatedUInt64(message, &field, index));
    case FieldDescriptor::CPPTYPE_BOOL:
      return integer(one ? reflection.GetBool(message, &field) : reflection.GetRepeatedBool(message, &field, index));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return AppendReal(
          one ? reflection.GetFloat(message, &field) : reflection.GetRepeatedFloat(message, &field, index), out);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return AppendReal(
          one ? reflection.GetDouble(message, &field) : reflection.GetRepeatedDouble(message, &field, index), out);
    case FieldDescriptor::CPPTYPE_ENUM:
      return AppendString(
          ShortName(*(one ? reflection.GetEnum(message, &field) : reflection.GetRepeatedEnum(message, &field, index))),
          out);
    case FieldDescriptor::CPPTYPE_STRING:
      return AppendString(
          one ? reflection.GetString(message, &field) : reflection.GetRepeatedString(message, &field, index), out);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return AppendMessage(
          one ? reflection.GetMessage(message, &field) : reflection.GetRepeatedMessage(message, &field, index), {},
          out);
  }
}

// A map is an object keyed by its keys, which in this protocol are strings.
void AppendMap(const Message& message, const FieldDescriptor& field, std::string* out) {
  const Reflection& reflection = *message.GetReflection();
  out->push_back('{');
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    if (i > 0) out->push_back(',');
    const Message& entry = reflection.GetRepeatedMessage(message, &field, i);
    AppendValue(entry, *entry.GetDescriptor()->map_key(), -1, out);
    out->push_back(':');
    AppendValue(entry, *entry.GetDescriptor()->map_value(), -1, out);
  }
  out->push_back('}');
}

void AppendList(const Message& message, const FieldDescriptor& field, std::string* out) {
  out->push_back('[');
  for (int i = 0; i < message.GetReflection()->FieldSize(message, &field); ++i) {
    if (i > 0) out->push_back(',');
    AppendValue(message, field, i, out);
  }
  out->push_back(']');
}

void AppendMessage(const Message& message, std::string_view event, std::string* out) {
  out->push_back('{');
  bool first = true;
  const auto key = [&](std::string_view name) {
    if (!first) out->push_back(',');
    first = false;
    AppendString(name, out);
    out->push_back(':');
  };
  if (!event.empty()) {
    key("event");
    AppendString(event, out);
  }
  const auto& descriptor = *message.GetDescriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    if (field.has_presence() && !message.GetReflection()->HasField(message, &field)) continue;
    key(field.name());
    if (field.is_map()) {
      AppendMap(message, field, out);
    } else if (field.is_repeated()) {
      AppendList(message, field, out);
    } else {
      AppendValue(message, field, -1, out);
    }
  }
  out->push_back('}');
}

}  // namespace

std::string JsonString(std::string_view text) {
  std::string out;
  AppendString(text, &out);
  return out;
}

std::string ToJson(const Message& message, std::string_view event) {
  std::string out;
  AppendMessage(message, event, &out);
  return out;
}

}  // namespace bulkhead::cli
