// The AdmissionCoordinator decides which request may use which worker, which worker may come to be, and which idle one
// has to go. It is pure: no I/O, no clock, no thread. What happened is told to it by calls, what is to be done comes
// back as actions (actions.h), so that a simulation can drive it through a million events.
//
// Use, on the loop thread only:
//   coordinator.Tick({clock.Monotonic(), clock.Boottime()});   // first in every loop turn; all other calls use this
//   time auto outcome = coordinator.Request(...);                   // or any other input for (const Action& action :
//   coordinator.TakeActions()) ... // until empty; inputs may be given while walking the list
//
// One worker per model key takes leases at a time. A request waits where that worker has no free sequence, is being
// loaded or torn down, or where there is no memory for it. The order of waiting is priority, raised by ageing, then
// arrival; memory a waiter is waiting for is promised to it before the next one is looked at. A request that needs no
// memory (its worker is resident) is never held up by one that does.
//
// Every lifecycle call returns whether the ledger made that move; false means stale or out of order, and changed
// nothing. Retiring a charge takes all three calls in order: Reaped, Settle, Free.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "admission/actions.h"
#include "admission/assessment.h"
#include "admission/estimate.h"
#include "admission/learned.h"
#include "admission/ledger.h"
#include "admission/policy.h"
#include "admission/preflight.h"
#include "admission/request.h"
#include "admission/ticket.h"
#include "admission/verdict.h"
#include "admission/wait_queue.h"
#include "base/clock.h"

namespace bulkhead::admission {

struct Now {
  Duration monotonic{};  // deadlines and ageing
  Duration boottime{};   // idleness and LRU
};

struct Outcome {
  // kAllowed: a lease is bound (a SpawnAction, BoundAction or GrantAction is among the actions). A waiting
  // verdict: the ticket is in the queue. Else `refusal` says why and the ticket is empty.
  Verdict verdict = Verdict::kAllowed;
  Ticket ticket{};
  Refusal refusal{};
};

struct Budget {
  std::string_view profile{};
  uint64_t generation = 0;
  uint64_t ceiling_bytes = 0;
  uint64_t charged_bytes = 0;
  uint64_t promised_bytes = 0;
  std::optional<uint64_t> live_headroom_bytes{};  // empty: not known
  uint32_t waiting = 0;
  Duration oldest_waiting{};
};

class AdmissionCoordinator {
 public:
  // `policy` has generation 1.
  explicit AdmissionCoordinator(const Policy& policy);
  AdmissionCoordinator(const AdmissionCoordinator&) = delete;
  AdmissionCoordinator& operator=(const AdmissionCoordinator&) = delete;

  // Time only moves forward; an earlier one is ignored. Refuses the waiters whose deadline has come.
  void Tick(Now now);
  // When Tick has something to do next, monotonic.
  [[nodiscard]] std::optional<Duration> NextDeadline() const;

  // Called whenever the list of actions stops being empty, also from a Ticket's destructor. It may only schedule a call
  // of TakeActions, not make it.
  void SetActionHook(std::function<void()> hook) { hook_ = std::move(hook); }
  [[nodiscard]] std::vector<Action> TakeActions();

  // --- Requests.
  [[nodiscard]] Outcome Request(const AdmitRequest& request);
  // What Request would say now, and why. Changes nothing.
  [[nodiscard]] PreflightReport Preflight(const AdmitRequest& request) const;
  // Puts a ticket whose worker went away back into the queue, with the age it has: for a load tried again after an
  // out-of-memory report and for replay. Not bounded by the queue limits. False for an unknown ticket.
  bool Requeue(TicketId ticket, Duration deadline);
  // 1 = next; 0 = not waiting.
  [[nodiscard]] uint32_t Position(TicketId ticket) const;
  // The allocation the ticket holds a lease on, 0 if none.
  [[nodiscard]] AllocationId LeaseOf(TicketId ticket) const;

  // --- One allocation's life.
  bool SpawnStarted(AllocationId id);  // RESERVED -> STARTING: from here the allocation owns the charge
  bool SpawnFailed(AllocationId id);   // RESERVED -> FREED
  bool LoadStarted(AllocationId id);   // STARTING -> LOADING
  bool LoadFinished(AllocationId id);  // LOADING -> BUSY, or IDLE where nobody holds a lease any more
  bool Measured(AllocationId id, uint64_t private_bytes);  // RssAnon + RssShmem + VmSwap
  // Drain: no new lease; requests wait for the next allocation. The state stays.
  bool StopRouting(AllocationId id);
  bool TeardownStarted(AllocationId id);  // STARTING..BUSY -> TEARDOWN; true again for one evicted already
  bool KillUnconfirmed(AllocationId id);  // TEARDOWN -> STUCK
  bool Reaped(AllocationId id);           // TEARDOWN, STUCK -> REAPED: waitid said so
  bool Settle(AllocationId id);           // REAPED -> SETTLED: peaks learned
  bool Free(AllocationId id);             // SETTLED -> FREED: charge retired, confirmations sent, waiters looked at
  // A worker of `id` ran out of memory; it would have needed `wanted_private_bytes` in all. Call before Settle. True:
  // the next estimate is raised, so tickets that waited for its load may be requeued; false: twice was enough.
  bool RanOutOfMemory(AllocationId id, uint64_t wanted_private_bytes);
  // A ConfirmAction with `token` follows when `id` is FREED (at once if it is), an UnconfirmedAction if it gets STUCK.
  // False for an id never given out.
  bool AwaitRetired(AllocationId id, uint64_t token);
  // Releases every worker idle for at least `idle_for` and not pinned: EvictAction each, TEARDOWN at once.
  std::vector<AllocationId> ReleaseIdle(Duration idle_for);

  // --- Policy and what surrounds us.
  // False, and nothing changes, unless `generation` is larger than the one in force.
  bool SetPolicy(const Policy& policy, uint64_t generation);
  // nullopt: cannot be read, so no worker can be started. Where headroom has been gone for kPressureFor, idle workers
  // are released, least recently used first, until PressureRelief of it is back; busy and pinned ones stay.
  void SetLiveMemory(std::optional<LiveMemory> memory);
  void SetPinned(std::string_view model, bool pinned);
  // kBreakerOpen or kModelMaintenance refuses the model's requests, waiting ones included; kAllowed lifts it.
  void SetBlocked(std::string_view model, Verdict why, Duration retry_after = {}, std::string_view detail = {});

  // --- What is.
  [[nodiscard]] Budget budget() const;
  [[nodiscard]] const Ledger& ledger() const { return ledger_; }
  // The allocation to which the model's requests are routed; 0 if none.
  [[nodiscard]] AllocationId Resident(std::string_view model) const;
  [[nodiscard]] bool pinned(std::string_view model) const;
  [[nodiscard]] uint32_t WaitingFor(std::string_view model) const;
  [[nodiscard]] LearnedPeaks& learned() { return learned_; }
  [[nodiscard]] Now now() const { return now_; }

 private:
  friend class Ticket;

  struct Block {
    Verdict why = Verdict::kBreakerOpen;
    Duration retry_after{};
    std::string detail;
  };

  void DropTicket(TicketId id);
  void Emit(Action action);
  // Looks at every waiter once, in order, and gives it what there is. Called after each input that could change an
  // answer; all it derives (claims, retiring marks) is derived anew, so nothing can go stale.
  void Pump();
  void ReleaseOverCeiling();
  void ReleaseUnderPressure();
  void Consider(TicketRecord& ticket, uint32_t position);
  void Load(TicketRecord& ticket, const Assessment& assessment);
  void Lease(TicketRecord& ticket, LedgerEntry& entry);
  void Wait(TicketRecord& ticket, const Assessment& assessment, uint32_t position);
  void Refuse(TicketId id, Verdict verdict, Refusal refusal);
  void Evict(LedgerEntry& entry, EvictionCause cause, TicketId for_ticket);
  void EndLease(LedgerEntry& entry, TicketId ticket);
  void Confirm(AllocationId id);
  void Announce(TicketRecord& ticket, Verdict verdict, uint32_t position);
  void WantSample();
  void Orphan(const std::vector<TicketId>& tickets);
  [[nodiscard]] Assessor MakeAssessor(std::span<const Demand> claims) const;
  // The waiter that memory for this model's next worker is promised to.
  [[nodiscard]] const TicketRecord* ClaimantFor(std::string_view model) const;
  [[nodiscard]] const Block* BlockOf(std::string_view model) const;

  Policy policy_;
  uint64_t generation_ = 1;
  uint64_t ceiling_ = 0;
  std::optional<LiveMemory> live_;
  std::optional<Duration> short_since_;  // monotonic: live headroom has been gone at every reading since
  bool live_stale_ = false;              // memory came back since the reading
  Ledger ledger_;
  LearnedPeaks learned_;
  WaitQueue queue_;
  Now now_;
  std::set<std::string, std::less<>> pinned_;
  std::map<std::string, Block, std::less<>> blocked_;
  std::multimap<AllocationId, uint64_t> confirmations_;
  // Of the last pump: what is promised, to whom, and the waiters for memory that hold no promise.
  std::vector<Demand> claims_;
  std::vector<TicketId> claimants_;
  std::vector<TicketId> passed_over_;
  // While Request runs: its ticket, whether it may wait, and its refusal if it gets one.
  TicketId fresh_ = 0;
  bool fresh_may_wait_ = true;
  Verdict fresh_verdict_ = Verdict::kAllowed;
  Refusal fresh_refusal_;
  bool sample_wanted_ = false;
  bool look_again_ = false;
  std::vector<Action> actions_;
  std::function<void()> hook_;
};

}  // namespace bulkhead::admission
