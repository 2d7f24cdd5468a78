#include "admission/coordinator.h"

#include <algorithm>
#include <utility>

#include "admission/mutant.h"

namespace bulkhead::admission {

using enum AllocationState;

AdmissionCoordinator::AdmissionCoordinator(const Policy& policy) : policy_(policy), ceiling_(CeilingOf(policy)) {}

void AdmissionCoordinator::Tick(Now now) {
  now_.monotonic = std::max(now_.monotonic, now.monotonic);
  now_.boottime = std::max(now_.boottime, now.boottime);
  const std::vector<TicketId> expired = queue_.Expired(now_.monotonic);
  for (const TicketId id : expired) {
    TicketRecord& ticket = *queue_.Find(id);
    const Verdict verdict = ticket.verdict;
    Refusal refusal = ExplainDeadline(verdict, ticket.for_sequence, *ticket.request.facts, ticket.figures,
                                      now_.monotonic - ticket.arrived);
    LedgerEntry* entry = ledger_.Find(ticket.allocation);
    Refuse(id, verdict, std::move(refusal));
    if (entry != nullptr) EndLease(*entry, id);
  }
  // Ageing alone can change who is next, so waiters are looked at even if none expired.
  if (!expired.empty() || queue_.waiting() > 0) Pump();
}

std::optional<Duration> AdmissionCoordinator::NextDeadline() const { return queue_.NextDeadline(); }

std::vector<Action> AdmissionCoordinator::TakeActions() { return std::exchange(actions_, {}); }

void AdmissionCoordinator::Emit(Action action) {
  actions_.push_back(std::move(action));
  if (actions_.size() == 1 && hook_) hook_();
}

Outcome AdmissionCoordinator::Request(const AdmitRequest& request) {
  const TicketId id = queue_.Add(request, now_.monotonic).id;
  fresh_ = id;
  fresh_may_wait_ = queue_.waiting() <= policy_.max_waiting &&
                    queue_.WaitingFor(request.facts->model) <= policy_.max_waiting_per_model;
  Pump();
  fresh_ = 0;
  const TicketRecord* ticket = queue_.Find(id);
  if (ticket != nullptr) return {.verdict = ticket->verdict, .ticket = Ticket(this, id), .refusal = {}};
  return {.verdict = fresh_verdict_, .ticket = {}, .refusal = std::exchange(fresh_refusal_, {})};
}

bool AdmissionCoordinator::Requeue(TicketId id, Duration deadline) {
  TicketRecord* ticket = queue_.Find(id);
  if (ticket == nullptr || ticket->state == TicketState::kWaiting) return false;
  LedgerEntry* entry = ledger_.Find(ticket->allocation);
  queue_.Requeue(*ticket, deadline);
  if (entry != nullptr) EndLease(*entry, id);
  Pump();
  return true;
}

void AdmissionCoordinator::DropTicket(TicketId id) {
  const TicketRecord* ticket = queue_.Find(id);
  if (ticket == nullptr) return;
  LedgerEntry* entry = ledger_.Find(ticket->allocation);
  queue_.Remove(id);
  if (entry != nullptr) EndLease(*entry, id);
  Pump();
}

void AdmissionCoordinator::EndLease(LedgerEntry& entry, TicketId ticket) {
  std::erase(entry.leases, ticket);
  if (IsReady(entry.state)) entry.last_used = now_.boottime;
  if (!entry.leases.empty()) return;
  const AllocationId id = entry.id;
  if (Mutant(Fault::kChargeWithTicket) && HasProcess(entry.state)) {
    ledger_.entries().erase(id);
    return;
  }
  if (entry.state == kBusy) (void)ledger_.Move(entry, kIdle);
  if (entry.state == kReserved && ledger_.Retire(id)) Confirm(id);
}

uint32_t AdmissionCoordinator::Position(TicketId id) const {
  const TicketRecord* ticket = queue_.Find(id);
  if (ticket == nullptr || ticket->state != TicketState::kWaiting) return 0;
  const std::vector<TicketId> order = queue_.Order(now_.monotonic, policy_.ageing_step);
  return static_cast<uint32_t>(std::find(order.begin(), order.end(), id) - order.begin()) + 1;
}

AllocationId AdmissionCoordinator::LeaseOf(TicketId id) const {
  const TicketRecord* ticket = queue_.Find(id);
  return ticket == nullptr ? 0 : ticket->allocation;
}

bool AdmissionCoordinator::RanOutOfMemory(AllocationId id, uint64_t wanted_private_bytes) {
  LedgerEntry* entry = ledger_.Find(id);
  if (entry == nullptr) return false;
  entry->aborted = true;
  const bool again = learned_.RanOutOfMemory(entry->facts->file, entry->shape, wanted_private_bytes);
  Pump();
  return again;
}

bool AdmissionCoordinator::AwaitRetired(AllocationId id, uint64_t token) {
  const LedgerEntry* entry = ledger_.Find(id);
  if (entry == nullptr) {
    if (!ledger_.WasFreed(id)) return false;
    Emit(ConfirmAction{token, id});
    return true;
  }
  confirmations_.emplace(id, token);
  if (entry->state == kStuck) Emit(UnconfirmedAction{token, id});
  return true;
}

void AdmissionCoordinator::Confirm(AllocationId id) {
  const auto [first, last] = confirmations_.equal_range(id);
  for (auto it = first; it != last; ++it) Emit(ConfirmAction{it->second, id});
  confirmations_.erase(first, last);
}

std::vector<AllocationId> AdmissionCoordinator::ReleaseIdle(Duration idle_for) {
  std::vector<AllocationId> released;
  for (auto& [id, entry] : ledger_.entries()) {
    const bool idle = entry.state == kIdle && now_.boottime - entry.last_used >= idle_for;
    if (!idle || pinned_.contains(entry.facts->model)) continue;
    Evict(entry, EvictionCause::kIdleTooLong, 0);
    released.push_back(id);
  }
  Pump();
  return released;
}

bool AdmissionCoordinator::SetPolicy(const Policy& policy, uint64_t generation) {
  if (generation == generation_) return false;
  if (generation < generation_ && !Mutant(Fault::kPolicyGoesBack)) return false;
  policy_ = policy;
  generation_ = generation;
  ceiling_ = CeilingOf(policy);
  Pump();
  return true;
}

void AdmissionCoordinator::SetLiveMemory(std::optional<LiveMemory> memory) {
  live_ = memory;
  live_stale_ = false;
  sample_wanted_ = false;
  ReleaseUnderPressure();
  Pump();
}

void AdmissionCoordinator::SetPinned(std::string_view model, bool pinned) {
  if (pinned) {
    pinned_.emplace(model);
  } else {
    pinned_.erase(std::string(model));
  }
  Pump();
}

void AdmissionCoordinator::SetBlocked(std::string_view model, Verdict why, Duration retry_after,
                                      std::string_view detail) {
  if (why == Verdict::kAllowed) {
    blocked_.erase(std::string(model));
  } else {
    blocked_.insert_or_assign(std::string(model), Block{why, retry_after, std::string(detail)});
  }
  Pump();
}

Budget AdmissionCoordinator::budget() const {
  const MemoryPlan standing(ledger_, ceiling_, live_, {});
  const MemoryPlan promising(ledger_, ceiling_, live_, claims_);
  Budget budget{.profile = NameOf(policy_.profile),
                .generation = generation_,
                .ceiling_bytes = ceiling_,
                .charged_bytes = standing.Total({}, nullptr),
                .promised_bytes = 0,
                .live_headroom_bytes = std::nullopt,
                .waiting = queue_.waiting(),
                .oldest_waiting = {}};
  budget.promised_bytes = promising.Total({}, nullptr) - budget.charged_bytes;
  if (live_.has_value()) budget.live_headroom_bytes = promising.LiveHeadroomNow();
  const auto oldest = queue_.OldestArrival();
  if (oldest.has_value()) budget.oldest_waiting = now_.monotonic - *oldest;
  return budget;
}

AllocationId AdmissionCoordinator::Resident(std::string_view model) const {
  const LedgerEntry* entry = CurrentOf(ledger_, model);
  return entry == nullptr ? 0 : entry->id;
}

bool AdmissionCoordinator::pinned(std::string_view model) const { return pinned_.contains(model); }

uint32_t AdmissionCoordinator::WaitingFor(std::string_view model) const { return queue_.WaitingFor(model); }

}  // namespace bulkhead::admission
