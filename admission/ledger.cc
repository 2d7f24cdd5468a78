#include "admission/ledger.h"

#include <algorithm>
#include <array>

#include "admission/mutant.h"

namespace bulkhead::admission {
namespace {

using enum AllocationState;

constexpr std::array<std::string_view, kAllocationStateCount> kNames = {
    "RESERVED", "STARTING", "LOADING", "IDLE", "BUSY", "TEARDOWN", "STUCK", "REAPED", "SETTLED", "FREED"};

// DESIGN section 4's picture; Retire adds the two moves to FREED.
bool Legal(AllocationState from, AllocationState to) {
  switch (to) {
    case kStarting:
      return from == kReserved;
    case kLoading:
      return from == kStarting;
    case kIdle:
      return from == kLoading || from == kBusy;
    case kBusy:
      return from == kLoading || from == kIdle;
    case kTeardown:
      return from >= kStarting && from <= kBusy;
    case kStuck:
      return from == kTeardown;
    case kReaped:
      return from == kTeardown || from == kStuck;
    case kSettled:
      return from == kReaped;
    case kReserved:
    case kFreed:
      return false;
  }
  return false;
}

bool MayRetire(AllocationState state) {
  if (Mutant(Fault::kSkipSettle) && state == kReaped) return true;
  return state == kSettled || state == kReserved;
}

}  // namespace

std::string_view NameOf(AllocationState state) { return kNames[static_cast<size_t>(state)]; }

bool HasProcess(AllocationState state) { return state >= kStarting && state <= kStuck; }

bool IsReady(AllocationState state) { return state == kIdle || state == kBusy; }

bool IsLeaving(AllocationState state) { return state >= kTeardown; }

uint64_t LedgerEntry::PrivateCharge() const {
  if (Mutant(Fault::kStuckIsFree) && state == kStuck) return 0;
  return std::max(estimate.Private(), measured_private);
}

uint64_t LedgerEntry::Untouched() const {
  if (state >= kReaped) return 0;
  const uint64_t charge = PrivateCharge();
  return charge > resident_private ? charge - resident_private : 0;
}

LedgerEntry& Ledger::Reserve(std::shared_ptr<const ModelFacts> facts, Shape shape, const Charge& estimate,
                             Duration boottime) {
  const AllocationId id = next_id_++;
  LedgerEntry& entry = entries_[id];
  entry.id = id;
  entry.facts = std::move(facts);
  entry.shape = shape;
  entry.estimate = estimate;
  entry.since = boottime;
  entry.last_used = boottime;
  return entry;
}

bool Ledger::Move(LedgerEntry& entry, AllocationState to) {
  if (!Legal(entry.state, to)) return false;
  entry.state = to;
  if (to == kReaped) entry.resident_private = 0;
  return true;
}

bool Ledger::Measure(LedgerEntry& entry, uint64_t private_bytes) {
  const uint64_t before = entry.PrivateCharge();
  entry.resident_private = private_bytes;
  entry.measured_private = std::max(entry.measured_private, private_bytes);
  return entry.PrivateCharge() > before;
}

bool Ledger::Retire(AllocationId id) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return Mutant(Fault::kFreeTwice) && WasFreed(id);
  if (!MayRetire(found->second.state)) return false;
  entries_.erase(found);
  return true;
}

LedgerEntry* Ledger::Find(AllocationId id) {
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : &found->second;
}

const LedgerEntry* Ledger::Find(AllocationId id) const {
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : &found->second;
}

bool Ledger::WasFreed(AllocationId id) const { return id != 0 && id < next_id_ && !entries_.contains(id); }

}  // namespace bulkhead::admission
