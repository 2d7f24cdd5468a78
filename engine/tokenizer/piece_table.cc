#include "engine/tokenizer/piece_table.h"

#include <bit>
#include <cstring>

namespace bulkhead::engine {
namespace {

uint64_t SlotCount(uint64_t count) { return std::bit_ceil(count * 2 + 1); }

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
    : pieces_(pieces), slots_(SlotCount(pieces.size())), mask_(slots_.size() - 1) {
  for (size_t id = 0; id < pieces.size(); ++id) {
    if (pieces[id].empty()) continue;
    const uint64_t hash = Hash(pieces[id]);
    const auto short_hash = static_cast<uint32_t>(hash >> 32);
    uint64_t at = hash & mask_;
    while (slots_[at].id >= 0 &&
           !(slots_[at].hash == short_hash && pieces_[static_cast<size_t>(slots_[at].id)] == pieces[id])) {
      at = (at + 1) & mask_;
    }
    slots_[at] = {short_hash, static_cast<int32_t>(id)};
  }
}

std::optional<int32_t> PieceTable::Find(std::string_view piece) const {
  const uint64_t hash = Hash(piece);
  const auto short_hash = static_cast<uint32_t>(hash >> 32);
  for (uint64_t at = hash & mask_; slots_[at].id >= 0; at = (at + 1) & mask_) {
    if (slots_[at].hash == short_hash && pieces_[static_cast<size_t>(slots_[at].id)] == piece) return slots_[at].id;
  }
  return std::nullopt;
}

uint64_t PieceTable::TableBytes(uint64_t count) { return SlotCount(count) * sizeof(Slot); }

}  // namespace bulkhead::engine
