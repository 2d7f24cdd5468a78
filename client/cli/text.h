// Small conversions between what people type and read and what the protocol carries. Pure.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bulkhead::cli {

// "250ms", "30s", "10m", "2h", "1d"; a bare number is seconds. kInvalidRequest otherwise.
absl::StatusOr<uint64_t> ParseMilliseconds(std::string_view text);

// "512 B", "4.2 MiB": one decimal below 100 of a unit.
std::string HumanBytes(uint64_t bytes);

// "350 ms", "12 s", "3 m 20 s", "2 h 5 m", "3 d 4 h".
std::string HumanMilliseconds(int64_t milliseconds);

// Index of the first byte that is not UTF-8, or npos.
size_t FirstInvalidUtf8(std::string_view text);

// Length in bytes of the UTF-8 character at the front of `text` (not empty); 0 where there is none (RFC 3629).
size_t Utf8CharacterLength(std::string_view text);

// `text` fit for a terminal: control characters but newline and tab become U+FFFD, so that no model or file name moves
// the cursor or rings the bell.
std::string Printable(std::string_view text);

// Rows under `header`, columns padded to their widest cell, two spaces between; the columns named in `right` (by index)
// are aligned right.
std::string Table(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows,
                  const std::vector<size_t>& right);

}  // namespace bulkhead::cli
