// How much memory the operator allows, and how much the machine has to give. Pure functions over numbers that the
// supervisor reads; bytes throughout.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/clock.h"

namespace bulkhead::admission {

enum class Profile : uint8_t {
  kEveryday,      // 40 % of RAM
  kLocalFocused,  // 80 % of RAM
  kCustom,        // a number of bytes; 0 = no local work at all
};

std::string_view NameOf(Profile profile);  // everyday, local_focused, custom
std::optional<Profile> ProfileFromName(std::string_view name);

struct Policy {
  Profile profile = Profile::kEveryday;
  uint64_t custom_bytes = 0;
  uint64_t ram_bytes = 0;                      // MemTotal
  std::optional<uint64_t> cgroup_limit_bytes;  // the tightest of our cgroup and its ancestors, v1 or v2
  uint32_t max_waiting = 1024;                 // requests waiting, all models together
  uint32_t max_waiting_per_model = 256;
  // A waiter counts as one priority more urgent for each of these it has waited. Zero = no ageing.
  Duration ageing_step = std::chrono::seconds(15);
};

// The profile's share of min(RAM, cgroup limit); custom: the bytes, capped by the same.
[[nodiscard]] uint64_t CeilingOf(const Policy& policy);

// One reading of /proc/meminfo.
struct LiveMemory {
  uint64_t total_bytes = 0;      // MemTotal
  uint64_t available_bytes = 0;  // MemAvailable; counts reclaimable cache, so also the weights that live workers map
};

// max(10 % of the total, 2 GiB): kept for everything that is not ours.
[[nodiscard]] uint64_t LiveReserve(uint64_t total_bytes);

// Headroom may be gone for a moment, while somebody compiles; and a worker released for a few bytes would be back at
// once.
inline constexpr Duration kPressureFor = std::chrono::seconds(1);
[[nodiscard]] uint64_t PressureRelief(uint64_t total_bytes);  // an eighth of the reserve

// MemAvailable - mapped file bytes of live workers' models - memory promised to workers that have not touched it yet -
// reserve; 0 where that is negative. The third term is why two loads cannot both spend one reading.
[[nodiscard]] uint64_t LiveHeadroom(const LiveMemory& memory, uint64_t mapped_bytes, uint64_t untouched_bytes);

}  // namespace bulkhead::admission
