#include "supervisor/machine_cpus.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "base/sys.h"
#include "supervisor/own_cgroup.h"

namespace bulkhead::supervisor {
namespace {

int Topology(int cpu, const char* file) {
  const auto number =
      ParseNumber(ReadTextFile(fmt::format("/sys/devices/system/cpu/cpu{}/topology/{}", cpu, file), 32));
  return static_cast<int>(number.value_or(0));
}

std::string Count(size_t number, const char* thing) {
  return fmt::format("{} {}{}", number, thing, number == 1 ? "" : "s");
}

}  // namespace

std::vector<int> MachineCpus::numbers() const {
  std::vector<int> numbers;
  for (const Cpu& cpu : cpus) numbers.push_back(cpu.number);
  return numbers;
}

MachineCpus ReadMachineCpus() {
  MachineCpus machine;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sys::SchedGetAffinity(0, sizeof(mask), &mask) > 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &mask)) {
        machine.cpus.push_back({cpu, Topology(cpu, "physical_package_id"), Topology(cpu, "core_id")});
      }
    }
  }
  if (machine.cpus.empty()) machine.cpus.push_back({});
  std::sort(machine.cpus.begin(), machine.cpus.end(), [](const MachineCpus::Cpu& a, const MachineCpus::Cpu& b) {
    return std::tie(a.package, a.core, a.number) < std::tie(b.package, b.core, b.number);
  });
  machine.quota = OwnCpuQuota();
  machine.usable = admission::UsableCpus(static_cast<uint32_t>(machine.cpus.size()), machine.quota);
  return machine;
}

std::string Describe(const MachineCpus& machine) {
  std::set<std::pair<int, int>> cores;
  std::set<int> packages;
  for (const MachineCpus::Cpu& cpu : machine.cpus) {
    cores.insert({cpu.package, cpu.core});
    packages.insert(cpu.package);
  }
  std::string quota = "no quota";
  if (machine.quota.has_value()) {
    quota = fmt::format("quota {:.2f} CPUs",
                        static_cast<double>(machine.quota->quota_us) / static_cast<double>(machine.quota->period_us));
  }
  return fmt::format("{} ({}), {}, {}; {}; {} may run at once", Count(machine.cpus.size(), "CPU"),
                     FormatCpus(machine.numbers()), Count(cores.size(), "core"), Count(packages.size(), "package"),
                     quota, Count(machine.usable, "thread"));
}

std::string FormatCpus(std::vector<int> numbers) {
  std::sort(numbers.begin(), numbers.end());
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!text.empty()) text += ",";
    text += last == i ? fmt::format("{}", numbers[i]) : fmt::format("{}-{}", numbers[i], numbers[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace bulkhead::supervisor
