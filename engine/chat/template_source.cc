#include "engine/chat/template_source.h"

#include <algorithm>
#include <vector>

namespace bulkhead::engine {
namespace {

constexpr std::string_view kSystemStart = "'<|im_start|>system\n";
constexpr std::string_view kMessageEnd = "<|im_end|>\n'";
// Stands for a quote inside a literal.
constexpr char kInnerQuote = '\x01';

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Reads the literal whose quote stands at `at`; appends it in single quotes with its escapes resolved. False where it
// does not end.
bool ReadLiteral(std::string_view source, size_t& at, std::string& out) {
  const char quote = source[at++];
  out.push_back('\'');
  for (; at < source.size(); ++at) {
    if (source[at] == quote) {
      ++at;
      out.push_back('\'');
      return true;
    }
    char c = source[at];
    if (c == '\\' && at + 1 < source.size()) {
      c = source[++at];
      c = c == 'n' ? '\n' : c == 't' ? '\t' : c;
    }
    out.push_back(c == '\'' ? kInnerQuote : c);
  }
  return false;
}

// "['role']" and the like at the end of `out` become ".role".
void SpellAsAttribute(std::string& out) {
  for (const std::string_view name : {"role", "content"}) {
    const std::string subscript = "['" + std::string(name) + "']";
    if (!out.ends_with(subscript)) continue;
    out.resize(out.size() - subscript.size());
    out.push_back('.');
    out.append(name);
  }
}

// Splits a source into canonical tags, "{{...}}" and "{%...%}".
class TagReader {
 public:
  explicit TagReader(std::string_view source) : source_(source) {
    if (source_.ends_with('\n')) source_.remove_suffix(1);
  }

  std::optional<std::vector<std::string>> ReadAll() {
    std::vector<std::string> tags;
    while (at_ < source_.size()) {
      const size_t open = source_.find('{', at_);
      const bool is_tag = open != std::string_view::npos && open + 1 < source_.size() &&
                          (source_[open + 1] == '{' || source_[open + 1] == '%');
      if (!OnlyTrimmed(source_.substr(at_, is_tag ? open - at_ : std::string_view::npos), open, is_tag)) {
        return std::nullopt;
      }
      if (!is_tag) return tags;
      at_ = open;
      std::string tag;
      if (!ReadTag(tag)) return std::nullopt;
      tags.push_back(std::move(tag));
    }
    return tags;
  }

 private:
  // Whether nothing of `text`, which stands between two tags, is written out.
  [[nodiscard]] bool OnlyTrimmed(std::string_view text, size_t open, bool is_tag) const {
    for (const char c : text) {
      if (!IsBlank(c)) return false;
    }
    if (is_tag && open + 2 < source_.size() && source_[open + 2] == '-') return true;
    if (after_dash_) return true;
    if (after_block_ && text.starts_with('\n')) text.remove_prefix(1);
    if (is_tag && source_[open + 1] == '%') {
      // Blanks before a block tag go where it begins its line.
      while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
    }
    return text.empty();
  }

  bool ReadTag(std::string& tag) {
    const char kind = source_[at_ + 1];
    const std::string_view close = kind == '{' ? "}}" : "%}";
    at_ += 2;
    if (at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+')) ++at_;
    tag = {'{', kind};
    while (at_ < source_.size()) {
      const std::string_view rest = source_.substr(at_);
      const bool dash = rest.starts_with('-') && rest.substr(1).starts_with(close);
      if (dash || rest.starts_with(close)) {
        at_ += close.size() + (dash ? 1 : 0);
        after_dash_ = dash;
        after_block_ = kind == '%';
        tag.append(close);
        return true;
      }
      if (rest[0] == '\'' || rest[0] == '"') {
        if (!ReadLiteral(source_, at_, tag)) return false;
        continue;
      }
      if (!IsBlank(rest[0])) tag.push_back(rest[0]);
      if (rest[0] == ']') SpellAsAttribute(tag);
      ++at_;
    }
    return false;
  }

  std::string_view source_;
  size_t at_ = 0;
  bool after_dash_ = false;
  bool after_block_ = false;
};

// Tags [begin, end) of a leading {%iftools%}...{%else%}...{%endif%} that hold without tools stay, with all that
// follows.
void DropToolsBranch(std::vector<std::string>& tags) {
  if (tags.empty() || tags[0] != "{%iftools%}") return;
  size_t depth = 0;
  size_t other = 0;
  size_t end = 0;
  for (size_t i = 0; i < tags.size() && end == 0; ++i) {
    if (tags[i].starts_with("{%if")) ++depth;
    if (tags[i] == "{%else%}" && depth == 1) other = i;
    if (tags[i] == "{%endif%}" && --depth == 0) end = i;
  }
  if (end == 0) return;
  tags.erase(tags.begin() + static_cast<std::ptrdiff_t>(end));
  tags.erase(tags.begin(), tags.begin() + static_cast<std::ptrdiff_t>(other == 0 ? end : other + 1));
}

std::optional<std::string> TakeDefaultSystem(std::string& text) {
  for (size_t at = text.find(kSystemStart); at != std::string::npos; at = text.find(kSystemStart, at + 1)) {
    const size_t begin = at + kSystemStart.size();
    const size_t quote = text.find('\'', begin);
    const size_t end = text.find(kMessageEnd, begin);
    if (end == std::string::npos || end + kMessageEnd.size() != quote + 1) continue;
    std::string system = text.substr(begin, end - begin);
    text.erase(begin, end - begin);
    std::replace(system.begin(), system.end(), kInnerQuote, '\'');
    return system;
  }
  return std::nullopt;
}

}  // namespace

std::optional<CanonicalTemplate> Canonicalise(std::string_view source) {
  std::optional<std::vector<std::string>> tags = TagReader(source).ReadAll();
  if (!tags.has_value()) return std::nullopt;
  DropToolsBranch(*tags);
  CanonicalTemplate result;
  for (const std::string& tag : *tags) result.text += tag;
  result.default_system = TakeDefaultSystem(result.text);
  return result;
}

}  // namespace bulkhead::engine
