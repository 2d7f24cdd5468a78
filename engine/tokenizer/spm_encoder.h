// SentencePiece-style encoding: characters are joined to pieces, highest score first, leftmost of equals; what is no
// piece becomes byte tokens. Spaces are written as U+2581. Thread-safe: immutable once created.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "engine/gguf/gguf.h"
#include "engine/tokenizer/text_encoder.h"
#include "engine/tokenizer/vocabulary.h"

namespace bulkhead::engine {

class SpmEncoder final : public TextEncoder {
 public:
  // `vocabulary` must outlive this.
  static absl::StatusOr<std::unique_ptr<SpmEncoder>> Create(const GgufFile& file, const Vocabulary& vocabulary);

  void Encode(std::string_view text, bool after_special, std::vector<int32_t>& ids) const override;
  void AppendBytes(int32_t id, std::string& out) const override;

 private:
  struct Symbol;
  class Joiner;

  explicit SpmEncoder(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}
  absl::Status ReadScores(const GgufFile& file);
  absl::Status ReadByteTokens();
  [[nodiscard]] float ScoreOf(int32_t id) const;
  void Emit(std::string_view text, std::vector<int32_t>& ids) const;

  const Vocabulary& vocabulary_;
  std::optional<GgufNumbers<float>> scores_;
  std::array<int32_t, 256> byte_tokens_;  // -1 = none
  bool space_prefix_ = true;
};

}  // namespace bulkhead::engine
