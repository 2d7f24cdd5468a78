// Short runs of the product's own code, one for each place that makes system calls, for errno_test.cc to break. Each
// gives back what it took (descriptors, children, files), whatever fails, and says how it went.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace bulkhead::faults {

struct Scenario {
  std::string name;
  std::function<absl::Status()> run;
  // Calls that always fail in it, for what is only reached then.
  std::vector<std::pair<std::string, int>> also;
  // Runs in a child of its own, since what it does cannot be undone; its status is not brought back, its end is.
  bool forked = false;
};

// Works below `directory`, which exists and is empty but for what earlier runs of the same scenario left.
std::vector<Scenario> AllScenarios(const std::string& directory);

}  // namespace bulkhead::faults
