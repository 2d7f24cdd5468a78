// The random draw of one token: a pure function of (seed, choice, position, stream), so that batch members, `n`
// choices, resumed runs and speculation differ in keys and never in generator state.
//
// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011): key = seed;
// counter = position (64 bits), choice, stream. The draw is the upper 53 bits of the first two output words over 2^53.
// Changing any of this changes every seeded output: it is part of kNumericsVersion's promise.
#pragma once

#include <array>
#include <cstdint>

namespace bulkhead::engine {

struct DrawKey {
  uint64_t seed = 0;
  uint64_t position = 0;  // absolute position in the sequence of the token to be chosen
  uint32_t choice = 0;    // which of the `n` choices of one request
  uint32_t stream = 0;    // 0 = the token itself; other numbers are for samplers that draw more than once
};

// In [0, 1).
double Draw(const DrawKey& key);

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

}  // namespace bulkhead::engine
