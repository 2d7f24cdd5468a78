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

  // Bytes of a table over `count` pieces.
  static uint64_t TableBytes(uint64_t count);

 private:
  struct Slot {
    uint32_t hash = 0;
    int32_t id = -1;
  };
  std::span<const std::string_view> pieces_;
  std::vector<Slot> slots_;
  uint64_t mask_;
};

}  // namespace bulkhead::engine
