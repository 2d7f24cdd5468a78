// How the simulation ends when an invariant does not hold: a line that begins with INVARIANT, and an exit code that no
// crash has, so that a mutant's failure can be told from an accident.
#pragma once

#include <cstdint>
#include <string>

namespace bulkhead::sim {

inline constexpr int kExitViolation = 10;
inline constexpr int kExitCoverage = 11;

// Prints the invariant and where to find it again, then exits.
[[noreturn]] void Violated(const std::string& what);

inline void Require(bool holds, const char* what) {
  if (!holds) [[unlikely]] {
    Violated(what);
  }
}

// Set by the driver; printed with a violation.
struct Position {
  uint64_t seed = 0;
  uint64_t event = 0;
  const char* kind = "";
};
Position& CurrentPosition();

}  // namespace bulkhead::sim
