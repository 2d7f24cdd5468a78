// A fuzzer's input as a row of moves: a control byte, a u16 length and that many bytes, so that mutations of one frame
// leave the others whole. The last move takes what is there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace bulkhead::fuzz {

struct Move {
  uint8_t control = 0;
  std::string_view payload;
};

class Script {
 public:
  Script(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

  std::optional<Move> Next() {
    if (rest_.size() < 3 || moves_ == kMaxMoves) return std::nullopt;
    ++moves_;
    const auto byte = [this](size_t i) { return static_cast<uint8_t>(rest_[i]); };
    const size_t length = std::min<size_t>(byte(1) | byte(2) << 8, rest_.size() - 3);
    const Move move{byte(0), rest_.substr(3, length)};
    rest_.remove_prefix(3 + length);
    return move;
  }

 private:
  static constexpr int kMaxMoves = 32;
  std::string_view rest_;
  int moves_ = 0;
};

}  // namespace bulkhead::fuzz
