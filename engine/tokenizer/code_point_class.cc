#include "engine/tokenizer/code_point_class.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace bulkhead::engine {
namespace {

constexpr auto L = CodePointClass::kLetter;
constexpr auto N = CodePointClass::kNumber;

struct Range {
  uint32_t first;
  uint32_t last;
  CodePointClass kind;
};

constexpr Range kRanges[] = {
#include "engine/tokenizer/code_point_ranges.inc"
};

bool IsWideSpace(uint32_t code) {
  return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 ||
         code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

CodePointClass AsciiClass(uint32_t code) {
  if ((code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z')) return L;
  if (code >= '0' && code <= '9') return N;
  if (code == '\r' || code == '\n') return CodePointClass::kNewline;
  if (code == ' ' || code == '\t' || code == '\v' || code == '\f') return CodePointClass::kSpace;
  return CodePointClass::kOther;
}

}  // namespace

CodePointClass ClassOf(uint32_t code) {
  if (code < 0x80) return AsciiClass(code);
  if (IsWideSpace(code)) return CodePointClass::kSpace;
  const Range* after = std::upper_bound(std::begin(kRanges), std::end(kRanges), code,
                                        [](uint32_t wanted, const Range& range) { return wanted < range.first; });
  if (after == std::begin(kRanges) || code > std::prev(after)->last) return CodePointClass::kOther;
  return std::prev(after)->kind;
}

}  // namespace bulkhead::engine
