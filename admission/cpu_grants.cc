#include "admission/cpu_grants.h"

#include <algorithm>

namespace bulkhead::admission {

uint32_t UsableCpus(uint32_t affinity_count, const std::optional<CpuQuota>& quota) {
  uint64_t usable = affinity_count;
  if (quota.has_value() && quota->period_us != 0) {
    const uint64_t whole = quota->quota_us / quota->period_us;
    usable = std::min(usable, whole + (quota->quota_us % quota->period_us != 0 ? 1 : 0));
  }
  return static_cast<uint32_t>(std::max<uint64_t>(usable, 1));
}

std::vector<CpuGrant> DivideCpus(std::span<const int> cpus, uint32_t usable, std::span<const uint64_t> busy) {
  std::vector<CpuGrant> grants;
  const size_t count = std::min<size_t>(cpus.size(), usable);
  if (count == 0 || busy.empty()) return grants;
  const size_t share = count / busy.size();
  const size_t larger = count % busy.size();
  size_t next = 0;
  for (size_t i = 0; i < busy.size(); ++i) {
    const size_t size = std::max<size_t>(share + (i < larger ? 1 : 0), 1);
    CpuGrant grant{.allocation = busy[i], .threads = static_cast<uint32_t>(size), .cpus = {}};
    for (size_t k = 0; k < size; ++k) grant.cpus.push_back(cpus[(next + k) % count]);
    next = (next + size) % count;
    grants.push_back(std::move(grant));
  }
  return grants;
}

}  // namespace bulkhead::admission
