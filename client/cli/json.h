// Protocol messages as JSON: snake_case field names in the order of the .proto file, every scalar printed even where it
// is zero or empty, numbers as numbers (64-bit integers too), enumerations by their name without prefix, bytes fields
// as text. Absent are only unset `optional` fields and unset messages. No state, no I/O.
#pragma once

#include <google/protobuf/message.h>

#include <string>
#include <string_view>

namespace bulkhead::cli {

// `text` as a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD, so the result always parses.
std::string JsonString(std::string_view text);

// `message` as one object on one line. `event`, where not empty, comes first as {"event":"..."}.
std::string ToJson(const google::protobuf::Message& message, std::string_view event = {});

}  // namespace bulkhead::cli
