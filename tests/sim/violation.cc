#include "tests/sim/violation.h"

#include <cstdio>
#include <cstdlib>

namespace bulkhead::sim {

Position& CurrentPosition() {
  static Position position;
  return position;
}

void Violated(const std::string& what) {
  const Position& at = CurrentPosition();
  std::fflush(stdout);
  std::fprintf(stderr,
               "INVARIANT violated: %s\n  after event %llu (%s); again with --seed %llu --events %llu --trace 40\n",
               what.c_str(), static_cast<unsigned long long>(at.event), at.kind,
               static_cast<unsigned long long>(at.seed), static_cast<unsigned long long>(at.event));
  std::exit(kExitViolation);
}

}  // namespace bulkhead::sim
