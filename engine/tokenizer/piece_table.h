// From a piece's text to its id: an open-addressing table of 8 bytes a slot over pieces that stand elsewhere.
// Thread-safe once filled.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace bulkhead::engine {

class PieceTable {
 public:
  // `pieces` must outlive the table. Of equal pieces the last one is found, as the reference does; empty ones never
  // are.
  explicit PieceTable(std::span<const std::string_view> pieces);

  [[nodiscard]] std::optional<int32_t> Find(std::string_view piece) const;

  // Find for many at once, -1 = none: the memory that each needs is fetched while the others are looked up, which for a
  // vocabulary beyond the caches is several times as fast. `ids` is as long as `texts`.
  void FindMany(std::span<const std::string_view> texts, std::span<int32_t> ids) const;

  // Bytes of a table over `count` pieces.
  static uint64_t TableBytes(uint64_t count);

 private:
  struct Slot {
    uint32_t hash = 0;
    int32_t id = -1;
  };
  void Insert(int32_t id, uint64_t hash);
  [[nodiscard]] int32_t FindHashed(std::string_view text, uint64_t hash) const;

  std::span<const std::string_view> pieces_;
  std::vector<Slot> slots_;
  uint64_t mask_;
};

}  // namespace bulkhead::engine
