// The simulation's randomness: splitmix64 and our own ranges, so that a seed replays alike with every library.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bulkhead::sim {

class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  // In [0, bound); bound > 0.
  uint64_t Below(uint64_t bound) { return Next() % bound; }
  uint64_t Between(uint64_t low, uint64_t high) { return low + Below(high - low + 1); }
  bool Percent(uint32_t percent) { return Below(100) < percent; }
  template <typename Container>
  const auto& Pick(const Container& container) {
    return container[static_cast<size_t>(Below(container.size()))];
  }

 private:
  uint64_t state_;
};

}  // namespace bulkhead::sim
