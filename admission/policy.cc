#include "admission/policy.h"

#include <algorithm>
#include <array>

#include "base/checked.h"

namespace bulkhead::admission {
namespace {

constexpr std::array<std::string_view, 3> kProfileNames = {"everyday", "local_focused", "custom"};
constexpr uint64_t kLeastReserve = uint64_t{2} << 30;

// Without a product that could overflow; at most 99 bytes below the exact share.
uint64_t Percent(uint64_t bytes, uint64_t percent) { return bytes / 100 * percent; }

}  // namespace

std::string_view NameOf(Profile profile) { return kProfileNames[static_cast<size_t>(profile)]; }

std::optional<Profile> ProfileFromName(std::string_view name) {
  const auto* found = std::find(kProfileNames.begin(), kProfileNames.end(), name);
  if (found == kProfileNames.end()) return std::nullopt;
  return static_cast<Profile>(found - kProfileNames.begin());
}

uint64_t CeilingOf(const Policy& policy) {
  const uint64_t ours = std::min(policy.ram_bytes, policy.cgroup_limit_bytes.value_or(policy.ram_bytes));
  switch (policy.profile) {
    case Profile::kEveryday:
      return Percent(ours, 40);
    case Profile::kLocalFocused:
      return Percent(ours, 80);
    case Profile::kCustom:
      return std::min(ours, policy.custom_bytes);
  }
  return 0;
}

uint64_t LiveReserve(uint64_t total_bytes) { return std::max(Percent(total_bytes, 10), kLeastReserve); }

uint64_t PressureRelief(uint64_t total_bytes) { return LiveReserve(total_bytes) / 8; }

uint64_t LiveHeadroom(const LiveMemory& memory, uint64_t mapped_bytes, uint64_t untouched_bytes) {
  uint64_t taken = LiveReserve(memory.total_bytes);
  for (const uint64_t term : {mapped_bytes, untouched_bytes}) {
    const auto sum = CheckedAdd(taken, term);
    if (!sum.has_value()) return 0;
    taken = *sum;
  }
  return memory.available_bytes > taken ? memory.available_bytes - taken : 0;
}

}  // namespace bulkhead::admission
