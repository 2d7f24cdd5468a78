// Enough of Jinja's lexical rules to say which of the known templates a source is, whatever its white space, quotes and
// subscripts look like. Settings are those of chat templates everywhere: trim_blocks, lstrip_blocks, one newline at the
// end dropped. Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace bulkhead::engine {

// The source in one canonical spelling: tags only, without white space outside string literals, literals in single
// quotes, message['role'] as message.role; the branch of a leading "if tools" that holds without tools, alone. The text
// of a default system message, "<|im_start|>system\n...<|im_end|>\n" as one literal, is taken out. nullopt where the
// source writes text outside its tags, comments, or does not end its tags and literals.
struct CanonicalTemplate {
  std::string text;
  std::optional<std::string> default_system;
};
std::optional<CanonicalTemplate> Canonicalise(std::string_view source);

}  // namespace bulkhead::engine
