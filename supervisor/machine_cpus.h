// The CPUs this process may use: its affinity mask, how they are wired, and what the cgroup's quota amounts to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "admission/cpu_grants.h"

namespace bulkhead::supervisor {

struct MachineCpus {
  struct Cpu {
    int number = 0;
    int package = 0;
    int core = 0;  // within its package
  };
  std::vector<Cpu> cpus;                     // of the affinity mask; those of one core, then of one package, together
  std::optional<admission::CpuQuota> quota;  // the tightest of our cgroup and its ancestors
  uint32_t usable = 1;                       // min(CPUs, quota rounded up)

  [[nodiscard]] std::vector<int> numbers() const;
  // A quota is time, not place: where it is what binds, threads are counted and not placed.
  [[nodiscard]] bool placed() const { return usable == cpus.size(); }
};

MachineCpus ReadMachineCpus();
// "2 CPUs (0-1), 2 cores, 1 package; no quota; 2 threads may run at once"
std::string Describe(const MachineCpus& machine);
// "0-3,6"; the numbers in any order.
std::string FormatCpus(std::vector<int> numbers);

}  // namespace bulkhead::supervisor
