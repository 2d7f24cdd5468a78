// Taking code points off the front of bytes that may be no UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bulkhead::engine {

struct CodePoint {
  uint32_t value = 0;  // kInvalidCodePoint for a byte that begins no valid character
  uint32_t bytes = 0;  // 1 to 4; 1 where invalid
};

inline constexpr uint32_t kInvalidCodePoint = 0xffffffff;

// The first code point of `text`, which must not be empty.
CodePoint DecodeCodePoint(std::string_view text);

// How a character begins: what its lead byte allows for the second byte, and how long it is. length 0 = no lead byte.
// Table 3-7 of the Unicode standard (well-formed UTF-8 byte sequences).
struct LeadByte {
  uint32_t length;
  uint8_t second_low;
  uint8_t second_high;
};
LeadByte ClassifyLeadByte(uint8_t byte);

void AppendCodePoint(uint32_t code, std::string& out);

}  // namespace bulkhead::engine
