// Sizes prefill chunks by time: how many rows the next forward may take so that it stays within a limit, learned from
// the forwards before it. Pure; used by one thread.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace bulkhead::engine {

class PrefillPacer {
 public:
  static constexpr uint32_t kFirstChunk = 16;
  static constexpr uint32_t kSmallestChunk = 4;

  // `fixed` rows always, where it is not 0 (tests).
  PrefillPacer(Duration limit, uint32_t fixed) : limit_(limit), fixed_(fixed) {}

  // Rows the next forward may take. While streams run beside it a chunk gets two fifths of the limit.
  [[nodiscard]] uint32_t Rows(bool streams_running) const;
  void Record(uint32_t rows, Duration took);

 private:
  Duration limit_;
  uint32_t fixed_;
  uint32_t largest_ = 0;  // rows of the largest forward seen: growth is at most fourfold a step
  double row_ns_ = 0;     // of the slowest of the recent forwards, decaying
};

}  // namespace bulkhead::engine
