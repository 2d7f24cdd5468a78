#include "admission/memory_plan.h"

#include <algorithm>
#include <limits>

#include "admission/mutant.h"
#include "base/checked.h"

namespace bulkhead::admission {
namespace {

uint64_t AddSaturating(uint64_t a, uint64_t b) {
  return CheckedAdd(a, b).value_or(std::numeric_limits<uint64_t>::max());
}

bool Contains(const MemoryPlan::Ids& ids, AllocationId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// Sums weights, each file once.
class WeightSum {
 public:
  void Add(const FileIdentity& file, uint64_t weights) {
    const bool known =
        std::find_if(files_.begin(), files_.end(), [&](const auto* f) { return *f == file; }) != files_.end();
    if (known && !Mutant(Fault::kWeightsTwice)) return;
    files_.push_back(&file);
    sum_ = AddSaturating(sum_, weights);
  }
  [[nodiscard]] uint64_t sum() const { return sum_; }

 private:
  std::vector<const FileIdentity*> files_;
  uint64_t sum_ = 0;
};

}  // namespace

uint64_t MemoryPlan::MappedBytes(const Ids& gone, const Demand* demand) const {
  WeightSum weights;
  for (const auto& [id, entry] : ledger_.entries()) {
    if (!Contains(gone, id)) weights.Add(entry.facts->file, entry.estimate.weights);
  }
  for (const Demand& claim : claims_) weights.Add(claim.file, claim.weights);
  if (demand != nullptr) weights.Add(demand->file, demand->weights);
  return weights.sum();
}

uint64_t MemoryPlan::Total(const Ids& gone, const Demand* demand) const {
  uint64_t total = MappedBytes(gone, demand);
  for (const auto& [id, entry] : ledger_.entries()) {
    if (!Contains(gone, id)) total = AddSaturating(total, entry.PrivateCharge());
  }
  for (const Demand& claim : claims_) total = AddSaturating(total, claim.private_bytes);
  return demand == nullptr ? total : AddSaturating(total, demand->private_bytes);
}

uint64_t MemoryPlan::UntouchedBytes(const Ids& gone) const {
  uint64_t untouched = 0;
  for (const auto& [id, entry] : ledger_.entries()) {
    if (!Contains(gone, id)) untouched = AddSaturating(untouched, entry.Untouched());
  }
  for (const Demand& claim : claims_) untouched = AddSaturating(untouched, claim.private_bytes);
  return untouched;
}

bool MemoryPlan::FitsLive(const Ids& gone, const Demand* demand) const {
  if (!live_.has_value()) return false;
  uint64_t taken = AddSaturating(LiveReserve(live_->total_bytes), MappedBytes(gone, demand));
  taken = AddSaturating(taken, UntouchedBytes(gone));
  if (demand != nullptr) taken = AddSaturating(taken, demand->private_bytes);
  uint64_t available = live_->available_bytes;
  for (const AllocationId id : gone) {
    const LedgerEntry* entry = ledger_.Find(id);
    if (entry != nullptr) available = AddSaturating(available, entry->resident_private);
  }
  return taken <= available;
}

uint64_t MemoryPlan::LiveHeadroomNow() const {
  if (!live_.has_value()) return 0;
  return LiveHeadroom(*live_, MappedBytes({}, nullptr), UntouchedBytes({}));
}

MemoryPlan::Ids MemoryPlan::Leaving(bool with_stuck) const {
  Ids ids;
  for (const auto& [id, entry] : ledger_.entries()) {
    if (IsLeaving(entry.state) && (with_stuck || entry.state != AllocationState::kStuck)) ids.push_back(id);
  }
  return ids;
}

MemoryPlan::Ids EvictionCandidates(const Ledger& ledger, const std::function<bool(std::string_view)>& pinned) {
  std::vector<const LedgerEntry*> idle;
  for (const auto& [id, entry] : ledger.entries()) {
    const bool busy = entry.state == AllocationState::kBusy;
    if (entry.state != AllocationState::kIdle && !(Mutant(Fault::kEvictBusy) && busy)) continue;
    if (pinned(entry.facts->model) && !Mutant(Fault::kEvictPinned)) continue;
    idle.push_back(&entry);
  }
  std::stable_sort(idle.begin(), idle.end(),
                   [](const LedgerEntry* a, const LedgerEntry* b) { return a->last_used < b->last_used; });
  MemoryPlan::Ids ids;
  for (const LedgerEntry* entry : idle) ids.push_back(entry->id);
  return ids;
}

std::optional<MemoryPlan::Ids> PickVictims(const MemoryPlan::Ids& gone, const MemoryPlan::Ids& candidates,
                                           const std::function<bool(const MemoryPlan::Ids&)>& fits) {
  MemoryPlan::Ids picks;
  const auto fits_with = [&](const MemoryPlan::Ids& chosen) {
    MemoryPlan::Ids all = gone;
    all.insert(all.end(), chosen.begin(), chosen.end());
    return fits(all);
  };
  for (const AllocationId id : candidates) {
    if (fits_with(picks)) break;
    picks.push_back(id);
  }
  if (!fits_with(picks)) return std::nullopt;
  // The last one tipped it; of the others the more recently used are spared first.
  for (size_t i = picks.size() < 2 ? 0 : picks.size() - 1; i-- > 0;) {
    MemoryPlan::Ids fewer = picks;
    fewer.erase(fewer.begin() + static_cast<ptrdiff_t>(i));
    if (fits_with(fewer)) picks = std::move(fewer);
  }
  return picks;
}

}  // namespace bulkhead::admission
