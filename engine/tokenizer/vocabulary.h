// The vocabulary of a GGUF file: pieces and what kind each is, the special ids, and whether the file wants begin and
// end tokens. Views into the map. Thread-safe: immutable once created.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/gguf/gguf.h"
#include "engine/tokenizer/piece_table.h"

namespace bulkhead::engine {

// As tokenizer.ggml.token_type.
enum class PieceKind : uint8_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

struct SpecialIds {
  std::optional<int32_t> bos, eos, unknown;
  bool adds_bos = false;
  bool adds_eos = false;
};

class Vocabulary {
 public:
  // `defaults`: what the tokenizer's model has where the file is silent. Ids of the file that are outside the
  // vocabulary are passed over, as files write -1 for "none".
  static absl::StatusOr<std::unique_ptr<Vocabulary>> Create(const GgufFile& file, const SpecialIds& defaults);
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  [[nodiscard]] uint32_t size() const { return static_cast<uint32_t>(pieces_.size()); }
  [[nodiscard]] bool Contains(int32_t id) const { return id >= 0 && static_cast<size_t>(id) < pieces_.size(); }
  [[nodiscard]] std::span<const std::string_view> pieces() const { return pieces_; }
  [[nodiscard]] std::string_view piece(int32_t id) const { return pieces_[static_cast<size_t>(id)]; }
  [[nodiscard]] PieceKind kind(int32_t id) const { return kinds_[static_cast<size_t>(id)]; }
  [[nodiscard]] std::optional<int32_t> Find(std::string_view piece) const { return table_->Find(piece); }
  // As PieceTable's.
  void FindMany(std::span<const std::string_view> texts, std::span<int32_t> ids) const { table_->FindMany(texts, ids); }
  [[nodiscard]] const SpecialIds& special() const { return special_; }
  [[nodiscard]] std::span<const int32_t> end_of_generation() const { return end_of_generation_; }
  [[nodiscard]] size_t longest_piece() const { return longest_piece_; }

 private:
  Vocabulary() = default;
  absl::Status ReadPieces(const GgufFile& file);
  absl::Status ReadKinds(const GgufFile& file);
  absl::Status ReadSpecial(const GgufFile& file, const SpecialIds& defaults);
  std::optional<int32_t> IdAt(const GgufFile& file, std::string_view key) const;
  void CollectEndOfGeneration(const GgufFile& file);

  std::vector<std::string_view> pieces_;
  std::vector<PieceKind> kinds_;
  std::unique_ptr<PieceTable> table_;
  SpecialIds special_;
  std::vector<int32_t> end_of_generation_;
  size_t longest_piece_ = 1;
};

}  // namespace bulkhead::engine
