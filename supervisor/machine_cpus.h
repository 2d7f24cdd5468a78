// The CPUs this process may use: its affinity mask, cut to what the cgroup's quota amounts to.
#pragma once

#include <vector>

namespace bulkhead::supervisor {

// Ascending CPU numbers, at least one.
std::vector<int> UsableCpuNumbers();

}  // namespace bulkhead::supervisor
