// The AdmissionCoordinator's inputs about one allocation's life.
#include <algorithm>

#include "admission/coordinator.h"
#include "admission/mutant.h"

namespace bulkhead::admission {

using enum AllocationState;

bool AdmissionCoordinator::SpawnStarted(AllocationId id) {
  LedgerEntry* entry = ledger_.Find(id);
  return entry != nullptr && ledger_.Move(*entry, kStarting);
}

bool AdmissionCoordinator::SpawnFailed(AllocationId id) {
  const LedgerEntry* entry = ledger_.Find(id);
  if (entry == nullptr || entry->state != kReserved) return false;
  const std::vector<TicketId> orphans = entry->leases;
  if (!ledger_.Retire(id)) return false;
  Orphan(orphans);
  Confirm(id);
  Pump();
  return true;
}

bool AdmissionCoordinator::LoadStarted(AllocationId id) {
  LedgerEntry* entry = ledger_.Find(id);
  return entry != nullptr && ledger_.Move(*entry, kLoading);
}

bool AdmissionCoordinator::LoadFinished(AllocationId id) {
  LedgerEntry* entry = ledger_.Find(id);
  if (entry == nullptr || entry->state != kLoading) return false;
  if (!ledger_.Move(*entry, entry->leases.empty() ? kIdle : kBusy)) return false;
  entry->last_used = now_.boottime;
  entry->was_ready = true;
  std::vector<TicketId> served = entry->leases;
  if (Mutant(Fault::kLoaderLast)) std::reverse(served.begin(), served.end());
  for (const TicketId ticket : served) {
    queue_.Grant(*queue_.Find(ticket));
    Emit(GrantAction{ticket, id});
  }
  Pump();
  return true;
}

bool AdmissionCoordinator::Measured(AllocationId id, uint64_t private_bytes) {
  LedgerEntry* entry = ledger_.Find(id);
  if (entry == nullptr || !HasProcess(entry->state)) return false;
  (void)ledger_.Measure(*entry, private_bytes);
  Pump();
  return true;
}

bool AdmissionCoordinator::StopRouting(AllocationId id) {
  LedgerEntry* entry = ledger_.Find(id);
  if (entry == nullptr || IsLeaving(entry->state)) return false;
  entry->routing_stopped = true;
  Pump();
  return true;
}

bool AdmissionCoordinator::TeardownStarted(AllocationId id) {
  LedgerEntry* entry = ledger_.Find(id);
  if (entry == nullptr) return false;
  if (entry->state == kTeardown) return true;
  if (!ledger_.Move(*entry, kTeardown)) return false;
  if (Mutant(Fault::kConfirmBeforeReap)) Confirm(id);
  Pump();
  return true;
}

bool AdmissionCoordinator::KillUnconfirmed(AllocationId id) {
  LedgerEntry* entry = ledger_.Find(id);
  if (entry == nullptr || !ledger_.Move(*entry, kStuck)) return false;
  const auto [first, last] = confirmations_.equal_range(id);
  for (auto it = first; it != last; ++it) Emit(UnconfirmedAction{it->second, id});
  Pump();
  return true;
}

bool AdmissionCoordinator::Reaped(AllocationId id) {
  LedgerEntry* entry = ledger_.Find(id);
  if (entry == nullptr || !ledger_.Move(*entry, kReaped)) return false;
  live_stale_ = true;
  if (queue_.waiting() > 0) WantSample();
  Pump();
  return true;
}

bool AdmissionCoordinator::Settle(AllocationId id) {
  LedgerEntry* entry = ledger_.Find(id);
  if (entry == nullptr || !ledger_.Move(*entry, kSettled)) return false;
  if (!entry->aborted) learned_.Measured(entry->facts->file, entry->shape, entry->measured_private);
  // Ready alone proves nothing: one that runs out of memory in its work would be granted its retries for ever.
  if (!entry->aborted && entry->was_ready) learned_.Served(entry->facts->file, entry->shape);
  // What was learned may have raised the estimates of those who wait.
  Pump();
  return true;
}

bool AdmissionCoordinator::Free(AllocationId id) {
  const LedgerEntry* entry = ledger_.Find(id);
  if (entry != nullptr && entry->state == kReserved) return false;
  const std::vector<TicketId> orphans = entry == nullptr ? std::vector<TicketId>() : entry->leases;
  if (!ledger_.Retire(id)) return false;
  Orphan(orphans);
  Confirm(id);
  if (!Mutant(Fault::kLoseWakeUp)) Pump();
  return true;
}

void AdmissionCoordinator::Orphan(const std::vector<TicketId>& tickets) {
  for (const TicketId id : tickets) {
    TicketRecord* ticket = queue_.Find(id);
    if (ticket == nullptr) continue;
    queue_.Grant(*ticket);
    ticket->allocation = 0;
  }
}

}  // namespace bulkhead::admission
