// The simulation's own statement of one allocation's life (DESIGN section 4), against which the ledger is held.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "admission/ledger.h"

namespace bulkhead::sim {

enum class Input : uint8_t {
  kSpawnStarted,
  kSpawnFailed,
  kLoadStarted,
  kLoadFinished,
  kMeasured,
  kStopRouting,
  kTeardownStarted,
  kKillUnconfirmed,
  kReaped,
  kSettle,
  kFree,
};
inline constexpr size_t kInputCount = static_cast<size_t>(Input::kFree) + 1;
std::string_view NameOf(Input input);

// The state after `input` in `from`, or nullopt where the coordinator must refuse it. LoadFinished leads to IDLE here;
// it is BUSY where a lease is held.
std::optional<admission::AllocationState> After(admission::AllocationState from, Input input);

}  // namespace bulkhead::sim
