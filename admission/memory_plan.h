// Whether a worker fits, and which idle ones would have to go for it: arithmetic over the ledger, the ceiling and the
// machine's live memory. All sums saturate at the top of u64, which fits nowhere. Short-lived views; nothing is
// changed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "admission/ledger.h"
#include "admission/policy.h"

namespace bulkhead::admission {

// Memory for a worker that does not exist yet.
struct Demand {
  FileIdentity file;
  uint64_t weights = 0;
  uint64_t private_bytes = 0;
};

class MemoryPlan {
 public:
  using Ids = std::vector<AllocationId>;

  // `claims`: what is promised to waiters ahead. All three must outlive the plan.
  MemoryPlan(const Ledger& ledger, uint64_t ceiling, const std::optional<LiveMemory>& live,
             std::span<const Demand> claims)
      : ledger_(ledger), ceiling_(ceiling), live_(live), claims_(claims) {}

  // Charges that would stand without the allocations `gone`, with the claims and `demand` (may be null).
  [[nodiscard]] uint64_t Total(const Ids& gone, const Demand* demand) const;
  [[nodiscard]] bool FitsCeiling(const Ids& gone, const Demand* demand) const {
    return Total(gone, demand) <= ceiling_;
  }
  // False where live memory is unknown.
  [[nodiscard]] bool FitsLive(const Ids& gone, const Demand* demand) const;
  [[nodiscard]] bool Fits(const Ids& gone, const Demand* demand) const {
    return FitsCeiling(gone, demand) && FitsLive(gone, demand);
  }
  // What FitsLive compares with nothing gone: MemAvailable - reserve - mapped - untouched - claims; 0 if negative.
  [[nodiscard]] uint64_t LiveHeadroomNow() const;
  [[nodiscard]] uint64_t MappedBytes(const Ids& gone, const Demand* demand) const;
  [[nodiscard]] uint64_t UntouchedBytes(const Ids& gone) const;

  // Allocations whose end is under way and expected: TEARDOWN, REAPED, SETTLED; STUCK too where asked for.
  [[nodiscard]] Ids Leaving(bool with_stuck) const;

 private:
  const Ledger& ledger_;
  uint64_t ceiling_;
  const std::optional<LiveMemory>& live_;
  std::span<const Demand> claims_;
};

// Idle workers that may be released, least recently used first. `pinned` says of a model key whether it is pinned.
[[nodiscard]] MemoryPlan::Ids EvictionCandidates(const Ledger& ledger,
                                                 const std::function<bool(std::string_view)>& pinned);

// The candidates to release, in order, so that `fits(gone + picks)` holds: the least recently used ones up to the one
// that tips it, less those among them that turn out not to be needed. nullopt where all of them would not do.
[[nodiscard]] std::optional<MemoryPlan::Ids> PickVictims(const MemoryPlan::Ids& gone, const MemoryPlan::Ids& candidates,
                                                         const std::function<bool(const MemoryPlan::Ids&)>& fits);

}  // namespace bulkhead::admission
