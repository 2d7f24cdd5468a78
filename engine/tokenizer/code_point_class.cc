#include "engine/tokenizer/code_point_class.h"

#include <algorithm>
#include <iterator>
#include <span>

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

constexpr auto M = CodePointClass::kOther;

constexpr Range kMarks[] = {
#include "engine/tokenizer/code_point_marks.inc"
};

// The range that holds `code`; nullptr where none does.
const Range* Find(std::span<const Range> ranges, uint32_t code) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), code,
                                      [](uint32_t wanted, const Range& range) { return wanted < range.first; });
  if (after == ranges.begin() || code > std::prev(after)->last) return nullptr;
  return &*std::prev(after);
}

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
  const Range* range = Find(kRanges, code);
  return range == nullptr ? CodePointClass::kOther : range->kind;
}

bool IsMark(uint32_t code) { return Find(kMarks, code) != nullptr; }

}  // namespace bulkhead::engine
