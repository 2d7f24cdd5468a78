#include "supervisor/machine_cpus.h"

#include <fcntl.h>
#include <sched.h>

#include <array>
#include <cstdio>
#include <optional>
#include <string>

#include "admission/cpu_grants.h"
#include "base/sys.h"

namespace bulkhead::supervisor {
namespace {

std::string ReadText(const char* path) {
  std::array<char, 64> buffer;
  const ssize_t got = sys::ReadSmallFile(AT_FDCWD, path, buffer);
  return {buffer.data(), got > 0 ? static_cast<size_t>(got) : 0};
}

// Of the cgroup that is mounted as ours: in a container that is the root of what we see.
std::optional<admission::CpuQuota> ReadQuota() {
  admission::CpuQuota quota;
  unsigned long long microseconds = 0;
  unsigned long long period = 0;
  const std::string v2 = ReadText("/sys/fs/cgroup/cpu.max");
  const std::string v1 = ReadText("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  const std::string v1_period = ReadText("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  if (std::sscanf(v2.c_str(), "%llu %llu", &microseconds, &period) == 2 && period > 0) {
    quota = {microseconds, period};
    return quota;
  }
  // "-1" is no limit.
  if (!v1.empty() && v1[0] != '-' && std::sscanf(v1.c_str(), "%llu", &microseconds) == 1 &&
      std::sscanf(v1_period.c_str(), "%llu", &period) == 1 && period > 0) {
    quota = {microseconds, period};
    return quota;
  }
  return std::nullopt;
}

}  // namespace

std::vector<int> UsableCpuNumbers() {
  std::vector<int> numbers;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sys::SchedGetAffinity(0, sizeof(mask), &mask) > 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &mask)) numbers.push_back(cpu);
    }
  }
  if (numbers.empty()) numbers.push_back(0);
  const uint32_t usable = admission::UsableCpus(static_cast<uint32_t>(numbers.size()), ReadQuota());
  if (numbers.size() > usable) numbers.resize(usable);
  return numbers;
}

}  // namespace bulkhead::supervisor
