#include "engine/tokenizer/piece_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace bulkhead::engine {
namespace {

// Lookups under way at once; about what a core can have outstanding to memory, and a little more.
constexpr size_t kBatch = 32;

uint64_t PieceSlots(uint64_t count) { return std::bit_ceil(count * 2 + 1); }

// Multiply and fold, 8 bytes at a time.
uint64_t Hash(std::string_view text) {
  constexpr uint64_t kMultiplier = 0x9fb21c651e98df25;
  uint64_t hash = text.size() * kMultiplier;
  size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + at, 8);
    hash = (hash ^ word) * kMultiplier;
    hash ^= hash >> 32;
  }
  uint64_t word = 0;
  for (int shift = 0; at < text.size(); ++at, shift += 8) word |= uint64_t{static_cast<uint8_t>(text[at])} << shift;
  hash = (hash ^ word) * kMultiplier;
  return hash ^ hash >> 29;
}

}  // namespace

PieceTable::PieceTable(std::span<const std::string_view> pieces)
    : pieces_(pieces), slots_(PieceSlots(pieces.size())), mask_(slots_.size() - 1) {
  std::array<uint64_t, kBatch> hashes;
  for (size_t first = 0; first < pieces.size(); first += kBatch) {
    const size_t count = std::min(kBatch, pieces.size() - first);
    for (size_t i = 0; i < count; ++i) {
      hashes[i] = Hash(pieces[first + i]);
      __builtin_prefetch(&slots_[hashes[i] & mask_], 1);
    }
    for (size_t i = 0; i < count; ++i) Insert(static_cast<int32_t>(first + i), hashes[i]);
  }
}

void PieceTable::Insert(int32_t id, uint64_t hash) {
  const std::string_view piece = pieces_[static_cast<size_t>(id)];
  if (piece.empty()) return;
  const auto short_hash = static_cast<uint32_t>(hash >> 32);
  uint64_t at = hash & mask_;
  while (slots_[at].id >= 0 &&
         !(slots_[at].hash == short_hash && pieces_[static_cast<size_t>(slots_[at].id)] == piece)) {
    at = (at + 1) & mask_;
  }
  slots_[at] = {short_hash, id};
}

int32_t PieceTable::FindHashed(std::string_view text, uint64_t hash) const {
  const auto short_hash = static_cast<uint32_t>(hash >> 32);
  uint64_t at = hash & mask_;
  while (slots_[at].id >= 0 &&
         !(slots_[at].hash == short_hash && pieces_[static_cast<size_t>(slots_[at].id)] == text)) {
    at = (at + 1) & mask_;
  }
  return slots_[at].id;
}

std::optional<int32_t> PieceTable::Find(std::string_view piece) const {
  const int32_t id = FindHashed(piece, Hash(piece));
  return id < 0 ? std::nullopt : std::optional(id);
}

void PieceTable::FindMany(std::span<const std::string_view> texts, std::span<int32_t> ids) const {
  std::array<uint64_t, kBatch> hashes;
  for (size_t first = 0; first < texts.size(); first += kBatch) {
    const auto batch = texts.subspan(first, std::min(kBatch, texts.size() - first));
    for (size_t i = 0; i < batch.size(); ++i) {
      hashes[i] = Hash(batch[i]);
      __builtin_prefetch(&slots_[hashes[i] & mask_]);
    }
    // The likely piece: its view, then its text.
    std::array<int32_t, kBatch> likely;
    for (size_t i = 0; i < batch.size(); ++i) {
      likely[i] = std::max(0, slots_[hashes[i] & mask_].id);
      __builtin_prefetch(&pieces_[static_cast<size_t>(likely[i])]);
    }
    for (size_t i = 0; i < batch.size(); ++i) __builtin_prefetch(pieces_[static_cast<size_t>(likely[i])].data());
    for (size_t i = 0; i < batch.size(); ++i) ids[first + i] = FindHashed(batch[i], hashes[i]);
  }
}

uint64_t PieceTable::TableBytes(uint64_t count) { return PieceSlots(count) * sizeof(Slot); }

}  // namespace bulkhead::engine
