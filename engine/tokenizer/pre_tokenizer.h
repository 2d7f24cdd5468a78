// Cuts text into the words inside which byte pairs may merge. A hand-written scanner of each published pattern: linear
// in the text, without backtracking, so no text can make it slow. Stateless and thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace bulkhead::engine {

enum class PreTokenizer : uint8_t {
  // 's|'t|'re|'ve|'m|'ll|'d | ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  kGpt2,
  // (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
  kQwen2,
  // As kQwen2 with [\p{L}\p{M}]+ for \p{L}+, and no marks in [^\s\p{L}\p{N}]+.
  kQwen35,
  // As kQwen2 with \p{N}{1,3}; a word that is a piece is taken whole, whatever the merges say.
  kLlama3,
  // As kLlama3, but merges decide always.
  kThreeDigits,
  // Each \p{N} is a word, what stands between is cut as by kGpt2.
  kRefact,
};

// The scanner for a value of tokenizer.ggml.pre; nullopt where there is none.
std::optional<PreTokenizer> PreTokenizerByName(std::string_view name);

// Bytes of the word at the start of `text`, which must not be empty; at least 1.
size_t NextWord(PreTokenizer kind, std::string_view text);

}  // namespace bulkhead::engine
