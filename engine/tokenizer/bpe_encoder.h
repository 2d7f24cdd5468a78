// Byte-level byte-pair encoding: each word of the pre-tokeniser, as letters of the byte alphabet, is merged lowest rank
// first, leftmost of equals. Thread-safe: immutable once created.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "engine/gguf/gguf.h"
#include "engine/tokenizer/merge_table.h"
#include "engine/tokenizer/pre_tokenizer.h"
#include "engine/tokenizer/text_encoder.h"
#include "engine/tokenizer/vocabulary.h"

namespace bulkhead::engine {

class BpeEncoder final : public TextEncoder {
 public:
  // `vocabulary` must outlive this.
  static absl::StatusOr<std::unique_ptr<BpeEncoder>> Create(const GgufFile& file, const Vocabulary& vocabulary,
                                                            PreTokenizer pre_tokenizer);

  void Encode(std::string_view text, bool after_special, std::vector<int32_t>& ids) const override;
  void AppendBytes(int32_t id, std::string& out) const override;

 private:
  BpeEncoder(const Vocabulary& vocabulary, PreTokenizer pre_tokenizer, MergeTable merges);
  bool EncodeWhole(std::string_view word, std::vector<int32_t>& ids) const;
  void EncodeShort(std::string_view word, std::vector<int32_t>& ids) const;
  void EncodeLong(std::string_view word, std::vector<int32_t>& ids) const;
  void Emit(uint32_t symbol, std::vector<int32_t>& ids) const;

  const Vocabulary& vocabulary_;
  PreTokenizer pre_tokenizer_;
  MergeTable merges_;
  std::array<uint32_t, 256> letters_;  // symbol of each byte
};

}  // namespace bulkhead::engine
