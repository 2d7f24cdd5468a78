#include "engine/tokenizer/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace bulkhead::engine {
namespace {

constexpr uint64_t kMaxPieces = 1 << 22;

// Names under which vocabularies keep their end-of-turn and end-of-text tokens.
constexpr std::array<std::string_view, 8> kEndNames = {"<|im_end|>",      "<|endoftext|>", "<|eot_id|>",
                                                       "<|end_of_text|>", "<end_of_turn>", "<|end|>",
                                                       "<|eom_id|>",      "<|return|>"};

absl::Status Invalid(const std::string& message) { return Error(Reason::kModelInvalid, message); }

}  // namespace

absl::StatusOr<std::unique_ptr<Vocabulary>> Vocabulary::Create(const GgufFile& file, const SpecialIds& defaults) {
  std::unique_ptr<Vocabulary> vocabulary(new Vocabulary());
  RETURN_IF_ERROR(vocabulary->ReadPieces(file));
  RETURN_IF_ERROR(vocabulary->ReadKinds(file));
  vocabulary->table_ = std::make_unique<PieceTable>(vocabulary->pieces_);
  RETURN_IF_ERROR(vocabulary->ReadSpecial(file, defaults));
  vocabulary->CollectEndOfGeneration(file);
  return vocabulary;
}

absl::Status Vocabulary::ReadPieces(const GgufFile& file) {
  constexpr std::string_view kKey = "tokenizer.ggml.tokens";
  const GgufValue* value = file.Find(kKey);
  if (value == nullptr) return Invalid(fmt::format("key {}: missing", kKey));
  const std::optional<GgufStrings> strings = value->AsStrings();
  if (!strings.has_value()) return Invalid(fmt::format("key {}: not an array of strings", kKey));
  if (strings->size() == 0 || strings->size() > kMaxPieces) {
    return Invalid(fmt::format("key {}: {} pieces, between 1 and {} are wanted", kKey, strings->size(), kMaxPieces));
  }
  // The parser has walked the strings, so the count is true.
  pieces_.reserve(strings->size());
  for (const std::string_view piece : *strings) {
    pieces_.push_back(piece);
    longest_piece_ = std::max(longest_piece_, piece.size());
  }
  return absl::OkStatus();
}

absl::Status Vocabulary::ReadKinds(const GgufFile& file) {
  constexpr std::string_view kKey = "tokenizer.ggml.token_type";
  kinds_.assign(pieces_.size(), PieceKind::kNormal);
  const GgufValue* value = file.Find(kKey);
  if (value == nullptr) return absl::OkStatus();
  const std::optional<GgufNumbers<int32_t>> numbers = value->AsInts();
  if (!numbers.has_value()) return Invalid(fmt::format("key {}: not an array of 32-bit integers", kKey));
  if (numbers->size() != pieces_.size()) {
    return Invalid(fmt::format("key {}: {} entries for {} pieces", kKey, numbers->size(), pieces_.size()));
  }
  for (size_t id = 0; id < pieces_.size(); ++id) {
    const int32_t kind = (*numbers)[id];
    if (kind < 0 || kind > static_cast<int32_t>(PieceKind::kByte)) {
      return Invalid(fmt::format("key {}: token {} is of kind {}, which does not exist", kKey, id, kind));
    }
    // 0, "undefined", is what older files write for a normal piece.
    if (kind != 0) kinds_[id] = static_cast<PieceKind>(kind);
  }
  return absl::OkStatus();
}

std::optional<int32_t> Vocabulary::IdAt(const GgufFile& file, std::string_view key) const {
  const GgufValue* value = file.Find(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<uint64_t> id = value->AsUnsigned();
  if (!id.has_value() || *id >= pieces_.size()) return std::nullopt;
  return static_cast<int32_t>(*id);
}

absl::Status Vocabulary::ReadSpecial(const GgufFile& file, const SpecialIds& defaults) {
  special_ = defaults;
  const auto take = [&](std::string_view key, std::optional<int32_t>& id) {
    if (file.Find(key) != nullptr) id = IdAt(file, key);
    if (id.has_value() && !Contains(*id)) id.reset();
  };
  take("tokenizer.ggml.bos_token_id", special_.bos);
  take("tokenizer.ggml.eos_token_id", special_.eos);
  take("tokenizer.ggml.unknown_token_id", special_.unknown);
  ASSIGN_OR_RETURN(special_.adds_bos, file.GetBool("tokenizer.ggml.add_bos_token", defaults.adds_bos));
  ASSIGN_OR_RETURN(special_.adds_eos, file.GetBool("tokenizer.ggml.add_eos_token", defaults.adds_eos));
  special_.adds_bos = special_.adds_bos && special_.bos.has_value();
  special_.adds_eos = special_.adds_eos && special_.eos.has_value();
  return absl::OkStatus();
}

void Vocabulary::CollectEndOfGeneration(const GgufFile& file) {
  std::vector<int32_t>& ids = end_of_generation_;
  if (special_.eos.has_value()) ids.push_back(*special_.eos);
  for (const std::string_view key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    if (const std::optional<int32_t> id = IdAt(file, key); id.has_value()) ids.push_back(*id);
  }
  for (const std::string_view name : kEndNames) {
    const std::optional<int32_t> id = Find(name);
    if (!id.has_value()) continue;
    if (kind(*id) == PieceKind::kControl || kind(*id) == PieceKind::kUserDefined) ids.push_back(*id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

}  // namespace bulkhead::engine
