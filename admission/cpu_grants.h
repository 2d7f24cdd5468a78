// Which CPUs each busy worker computes on. Pure: the supervisor reads affinity and quota, sends the thread counts and
// sets the masks. Idle workers hold no grant.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace bulkhead::admission {

// cpu.max or cpu.cfs_quota_us / cpu.cfs_period_us.
struct CpuQuota {
  uint64_t quota_us = 0;
  uint64_t period_us = 100'000;
};

// min(affinity, ceil(quota / period)), at least 1. A quota of 1.5 CPUs is 2 threads: the second one is throttled for
// half of each period, which beats leaving half a CPU unused.
[[nodiscard]] uint32_t UsableCpus(uint32_t affinity_count, const std::optional<CpuQuota>& quota);

struct CpuGrant {
  uint64_t allocation = 0;
  uint32_t threads = 1;
  std::vector<int> cpus;  // ascending CPU numbers, as many as threads
};

// Divides the first `usable` of `cpus` (ascending, as in our affinity mask) among `busy` allocations in the order
// given: disjoint slices whose sizes differ by at most one, the earlier ones the larger; where there are more workers
// than CPUs each gets one CPU, in turn. `busy` should be in a stable order, or masks move for nothing.
[[nodiscard]] std::vector<CpuGrant> DivideCpus(std::span<const int> cpus, uint32_t usable,
                                               std::span<const uint64_t> busy);

}  // namespace bulkhead::admission
