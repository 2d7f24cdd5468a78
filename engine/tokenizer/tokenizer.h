// Text to token ids and back, as the vocabulary in a GGUF file says: SentencePiece unigram scores with byte fallback
// ("llama") or byte-level byte-pair merges ("gpt2" with a pre-tokeniser known by name). Any other is kModelUnsupported.
//
// Ids are exactly those of the reference for valid UTF-8. Bytes that are no UTF-8 are encoded as the bytes they are and
// never refused. Building takes milliseconds for 152k pieces: pieces and merges are looked up in flat tables that point
// into the file's map, which must outlive the tokenizer.
//
// Thread-safe: immutable once created.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/gguf/gguf.h"
#include "engine/tokenizer/byte_range.h"

namespace bulkhead::engine {

class SpecialSplitter;
class TextEncoder;
class Vocabulary;

enum class TokenizerKind : uint8_t { kSpm, kBpe };

struct EncodeOptions {
  bool add_special = true;     // put the begin (and end) token where the file asks for it
  bool parse_special = false;  // control tokens written out in the text become those tokens; user text keeps false
  // Except in these ranges: what people wrote inside a rendered conversation. Ascending, disjoint.
  std::span<const ByteRange> literal = {};
};

class Tokenizer {
 public:
  static absl::StatusOr<Tokenizer> Create(const GgufFile& file);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Private bytes that Create's tables for this file take, for an estimate before it is called.
  static uint64_t TableBytes(const GgufFile& file);

  // Time is O(n log n) and memory O(n) in the text's bytes, whatever they are.
  [[nodiscard]] std::vector<int32_t> Encode(std::string_view text, EncodeOptions options) const;

  // No text of `bytes` bytes encodes to fewer tokens than this: what cannot fit is refused before it is encoded.
  [[nodiscard]] uint64_t FewestTokens(uint64_t bytes) const;

  [[nodiscard]] TokenizerKind kind() const { return kind_; }
  [[nodiscard]] std::string_view kind_name() const { return kind_ == TokenizerKind::kSpm ? "spm" : "bpe"; }
  [[nodiscard]] uint32_t size() const;

  // Appends the bytes that `id` stands for in output; they may be part of a UTF-8 character only. Control, unknown and
  // unused tokens stand for nothing, unless `special` asks for their names. An id outside the vocabulary is nothing.
  void AppendBytes(int32_t id, std::string& out, bool special = false) const;

  // The piece as the file writes it; empty for an id outside the vocabulary.
  [[nodiscard]] std::string_view Piece(int32_t id) const;
  [[nodiscard]] std::optional<int32_t> Find(std::string_view piece) const;
  [[nodiscard]] bool IsControl(int32_t id) const;

  [[nodiscard]] std::optional<int32_t> bos() const;
  [[nodiscard]] std::optional<int32_t> eos() const;
  [[nodiscard]] bool adds_bos() const;
  [[nodiscard]] bool adds_eos() const;

  // Tokens that end a generation, ascending: the file's eos and eot, and control tokens known by name.
  [[nodiscard]] std::span<const int32_t> end_of_generation() const;
  [[nodiscard]] bool IsEndOfGeneration(int32_t id) const;

 private:
  Tokenizer(TokenizerKind kind, std::unique_ptr<Vocabulary> vocabulary, std::unique_ptr<SpecialSplitter> splitter,
            std::unique_ptr<TextEncoder> encoder);

  TokenizerKind kind_;
  std::unique_ptr<Vocabulary> vocabulary_;
  std::unique_ptr<SpecialSplitter> splitter_;
  std::unique_ptr<TextEncoder> encoder_;
};

}  // namespace bulkhead::engine
