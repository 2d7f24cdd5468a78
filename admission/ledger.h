// Who is charged for how much. One entry per allocation id, from RESERVED to FREED; an entry leaves the ledger at FREED
// and its id is never used again. The states and moves are those of DESIGN section 4:
//
//   RESERVED -> STARTING -> LOADING -> IDLE <-> BUSY
//   STARTING..BUSY -> TEARDOWN -> REAPED -> SETTLED -> FREED
//   RESERVED -> FREED (given up, spawn failed)      TEARDOWN -> STUCK (still charged) -> REAPED
//
// Every move returns whether it was legal; an illegal one (a stale timer, a second free) changes nothing. Owned by the
// coordinator; single-threaded; no I/O. Bytes throughout.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "admission/estimate.h"
#include "base/clock.h"

namespace bulkhead::admission {

// The n of "<model>#<boot>.<n>". Never 0, ascending, never reused.
using AllocationId = uint64_t;
using TicketId = uint64_t;

enum class AllocationState : uint8_t {
  kReserved,
  kStarting,
  kLoading,
  kIdle,
  kBusy,
  kTeardown,
  kStuck,
  kReaped,
  kSettled,
  kFreed,
};
inline constexpr size_t kAllocationStateCount = static_cast<size_t>(AllocationState::kFreed) + 1;

std::string_view NameOf(AllocationState state);  // RESERVED, STARTING, ...

// True from STARTING to STUCK: a process exists, or may.
bool HasProcess(AllocationState state);
// True in IDLE and BUSY.
bool IsReady(AllocationState state);
// True from TEARDOWN on: its bytes come back, or are waited for.
bool IsLeaving(AllocationState state);

struct LedgerEntry {
  AllocationId id = 0;
  std::shared_ptr<const ModelFacts> facts;
  Shape shape;
  Charge estimate;
  uint64_t measured_private = 0;  // the worst reading so far of RssAnon + RssShmem + VmSwap
  uint64_t resident_private = 0;  // the last reading; 0 once reaped
  AllocationState state = AllocationState::kReserved;
  bool routing_stopped = false;  // by the supervisor: draining, takes no new lease
  bool retiring = false;         // by a waiter that this worker cannot serve; recomputed at every event
  bool was_ready = false;        // it was IDLE or BUSY at some time
  bool aborted = false;          // an out-of-memory report came from it: its measured peak teaches nothing
  TicketId loader = 0;           // whose request loads it
  std::vector<TicketId> leases;  // in the order they were bound; the loader first
  Duration since{};              // boottime of the reservation
  Duration last_used{};          // boottime at which the last lease ended; of READY before that

  // max(estimate, measured) without the weights.
  [[nodiscard]] uint64_t PrivateCharge() const;
  // Private bytes charged but not seen in the last reading; 0 once reaped. A process that is being killed may still
  // touch them.
  [[nodiscard]] uint64_t Untouched() const;
};

class Ledger {
 public:
  // Charges a new allocation.
  LedgerEntry& Reserve(std::shared_ptr<const ModelFacts> facts, Shape shape, const Charge& estimate, Duration boottime);

  [[nodiscard]] bool Move(LedgerEntry& entry, AllocationState to);
  // Takes a reading; the charge never falls by it. Returns whether the charge rose.
  bool Measure(LedgerEntry& entry, uint64_t private_bytes);
  // SETTLED -> FREED, or RESERVED -> FREED: the charge is retired and the entry destroyed.
  [[nodiscard]] bool Retire(AllocationId id);

  [[nodiscard]] LedgerEntry* Find(AllocationId id);
  [[nodiscard]] const LedgerEntry* Find(AllocationId id) const;
  // Whether `id` was once given out and is gone.
  [[nodiscard]] bool WasFreed(AllocationId id) const;
  [[nodiscard]] const std::map<AllocationId, LedgerEntry>& entries() const { return entries_; }
  [[nodiscard]] std::map<AllocationId, LedgerEntry>& entries() { return entries_; }

 private:
  std::map<AllocationId, LedgerEntry> entries_;
  AllocationId next_id_ = 1;
};

}  // namespace bulkhead::admission
