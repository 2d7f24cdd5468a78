// Chooses the tier a process computes with: the best one the processor can run, or the one BULKHEAD_KERNEL_TIER names.
// Every tier gives the same bits, so the choice shows in speed alone. Thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/cpu_features.h"
#include "kernels/kernels.h"

namespace bulkhead::kernels {

struct TierChoice {
  const KernelTable* table;  // never null; static lifetime
  std::string reason;  // why not a better or the asked-for tier, in words; empty when there was nothing to give up
};

// The best tier `features` can run. `wanted` names one instead ("reference", "avx2", "avx512"; empty: no wish); a wish
// that is unknown or cannot run falls to the best that can, and the reason says so.
TierChoice ChooseTier(const CpuFeatures& features, std::string_view wanted);

// ChooseTier for this processor and the environment's BULKHEAD_KERNEL_TIER, decided once per process.
const TierChoice& DefaultTier();

// Every tier this processor can run, `reference` first.
std::vector<const KernelTable*> RunnableTiers(const CpuFeatures& features);

}  // namespace bulkhead::kernels
