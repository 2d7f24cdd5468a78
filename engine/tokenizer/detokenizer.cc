#include "engine/tokenizer/detokenizer.h"

#include "engine/tokenizer/utf8.h"

namespace bulkhead::engine {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// How many bytes at the start of `text` could still be the beginning of one character (less than all of it): the
// maximal subpart. 0 where the first byte begins none.
size_t ValidPrefix(std::string_view text) {
  const LeadByte lead = ClassifyLeadByte(static_cast<uint8_t>(text[0]));
  size_t size = lead.length == 0 ? 0 : 1;
  while (size > 0 && size < text.size() && size < lead.length) {
    const auto byte = static_cast<uint8_t>(text[size]);
    const bool fits = size == 1 ? byte >= lead.second_low && byte <= lead.second_high : (byte & 0xc0) == 0x80;
    if (!fits) break;
    ++size;
  }
  return size;
}

}  // namespace

void Detokenizer::Push(std::string_view bytes, std::string& text) {
  held_.append(bytes);
  const std::string_view input = held_;
  size_t at = 0;
  while (at < input.size()) {
    const std::string_view rest = input.substr(at);
    const CodePoint code = DecodeCodePoint(rest);
    if (code.value != kInvalidCodePoint) {
      text.append(rest.substr(0, code.bytes));
      at += code.bytes;
      continue;
    }
    const size_t prefix = ValidPrefix(rest);
    if (prefix == rest.size()) break;
    text.append(kReplacement);
    at += prefix == 0 ? 1 : prefix;
  }
  held_.erase(0, at);
}

bool Detokenizer::Finish(std::string& text) {
  if (held_.empty()) return false;
  text.append(kReplacement);
  held_.clear();
  return true;
}

}  // namespace bulkhead::engine
