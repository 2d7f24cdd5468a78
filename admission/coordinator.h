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
#include <string>
#include <string_view>
#include <vector>

#include "admission/actions.h"
#include "admission/estimate.h"
#include "admission/learned.h"
#include "admission/ledger.h"
#include "admission/policy.h"
#include "admission/ticket.h"
#include "admission/verdict.h"
#include "base/clock.h"

namespace bulkhead::admission {

enum class Priority : uint8_t { kInteractive, kNormal, kBatch };
inline constexpr size_t kPriorityCount = 3;

struct Now {
  Duration monotonic{};  // deadlines and ageing
  Duration boottime{};   // idleness and LRU
};

struct AdmitRequest {
  std::shared_ptr<const ModelFacts> facts;
  uint32_t context = 0;  // tokens one sequence needs; 0 = the default
  uint32_t sequences =
      0;  // 0 = the default, shrinking to one to fit; else exactly as many, if a worker is to be loaded
  Priority priority = Priority::kNormal;
  Duration deadline = Duration::max();  // monotonic; until GrantAction
  bool may_evict = true;                // false: do not release idle workers for it
};

struct Outcome {
  // kAllowed: a lease is bound (a SpawnAction or GrantAction follows, now or when the worker is ready). A waiting
  // verdict: the ticket is in the queue. Else `refusal` says why and the ticket is empty.
  Verdict verdict = Verdict::kAllowed;
  Ticket ticket;
  Refusal refusal;
};

struct PreflightLine {
  std::string what;
  int64_t bytes = 0;
  std::string note;
};

struct PreflightReport {
  Verdict verdict = Verdict::kAllowed;
  std::vector<PreflightLine> lines;
  Shape shape;  // what would be loaded
  Charge estimate;
  std::vector<AllocationId> would_release;  // in the order of release
  uint32_t max_context = 0;                 // the largest that fits the ceiling with one sequence
  Refusal refusal;                          // filled unless kAllowed
};

struct Budget {
  std::string_view profile;
  uint64_t generation = 0;
  uint64_t ceiling_bytes = 0;
  uint64_t charged_bytes = 0;
  uint64_t promised_bytes = 0;
  std::optional<uint64_t> live_headroom_bytes;  // empty: not known
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
  // A worker of `id` ran out of memory while loading; it would have needed `wanted_private_bytes` in all. Call before
  // Settle. True: the next estimate is raised, so Requeue its tickets; false: twice was enough, refuse them.
  bool RanOutOfMemory(AllocationId id, uint64_t wanted_private_bytes);
  // A ConfirmAction with `token` follows when `id` is FREED (at once if it is), an UnconfirmedAction if it gets STUCK.
  // False for an id never given out.
  bool AwaitRetired(AllocationId id, uint64_t token);
  // Releases every worker idle for at least `idle_for` and not pinned: EvictAction each, TEARDOWN at once.
  std::vector<AllocationId> ReleaseIdle(Duration idle_for);

  // --- Policy and what surrounds us.
  // False, and nothing changes, unless `generation` is larger than the one in force.
  bool SetPolicy(const Policy& policy, uint64_t generation);
  // nullopt: cannot be read, so no worker can be started.
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

  Ledger ledger_;
  LearnedPeaks learned_;
  Now now_;
  std::function<void()> hook_;
};

}  // namespace bulkhead::admission
