// The merges of a byte-pair vocabulary over symbols: ids of pieces, and above them numbers for texts that merges make
// or use without the vocabulary having them. Flat: 16 bytes a slot. Thread-safe once created.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "engine/gguf/gguf_value.h"
#include "engine/tokenizer/vocabulary.h"

namespace bulkhead::engine {

struct Merge {
  uint32_t rank;    // lower goes first
  uint32_t result;  // symbol
};

class MergeTable {
 public:
  // Of equal merges the first counts. `vocabulary` must outlive the table.
  static absl::StatusOr<MergeTable> Create(const GgufStrings& merges, const Vocabulary& vocabulary);

  [[nodiscard]] std::optional<Merge> Find(uint32_t left, uint32_t right) const;

  // Symbol of a one-letter text or of a piece; a new one where nothing is known of the text.
  uint32_t Intern(std::string_view text);
  // Text of a symbol that is no piece.
  [[nodiscard]] std::string_view TextOf(uint32_t symbol) const { return extra_texts_[symbol - first_extra_]; }
  [[nodiscard]] bool IsPiece(uint32_t symbol) const { return symbol < first_extra_; }

  // Bytes of a table of `count` merges.
  static uint64_t TableBytes(uint64_t count);

 private:
  static constexpr uint32_t kNoSymbol = 0xffffffff;
  struct Slot {
    uint32_t left = kNoSymbol;
    uint32_t right = kNoSymbol;
    Merge merge = {};
  };

  // Merges on their way into the table, with what was found of their texts.
  struct Batch;

  MergeTable(const Vocabulary& vocabulary, uint64_t count);
  absl::Status Add(std::span<const std::string_view> merges, uint32_t first_rank, Batch& batch);
  void Insert(uint32_t left, uint32_t right, Merge merge);
  uint32_t InternFound(std::string_view text, int32_t id);
  uint32_t InternJoined(std::string_view left, std::string_view right);
  [[nodiscard]] uint64_t SlotOf(uint32_t left, uint32_t right) const;

  const Vocabulary* vocabulary_;
  std::vector<Slot> slots_;
  uint64_t mask_;
  uint32_t first_extra_;
  uint32_t last_result_ = 0;
  std::unordered_map<std::string, uint32_t> extras_;
  std::vector<std::string> extra_texts_;
  std::string joined_;
};

}  // namespace bulkhead::engine
