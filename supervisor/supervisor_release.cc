// Ends on purpose: terminate, release, the idle sweep, shutdown. Whichever comes first does it; the others wait for the
// same end.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "admission/cpu_grants.h"
#include "bulkhead/v1/worker.pb.h"
#include "supervisor/supervisor.h"

namespace bulkhead::supervisor {
namespace {

using Kind = InferenceTerminationAck::Kind;

// Evidence is kept for as many terminations; far more than anyone asks again about.
constexpr size_t kMaxTerminations = 1024;
// A machine that was suspended may find its workers idle for longer than the timer knew.
constexpr Duration kIdleRecheck = std::chrono::seconds(60);

// Counts down the ends that one caller waits for.
struct Gathering {
  size_t left = 0;
  std::vector<std::string> released;
  std::vector<std::string> unconfirmed;
  std::function<void(Gathering&)> done;

  void One() {
    if (--left == 0) done(*this);
  }
};

}  // namespace

void Supervisor::Terminate(std::string_view id_view, std::function<void(InferenceTerminationAck)> done) {
  const std::string id(id_view);
  const auto answer = [&](InferenceTerminationAck ack) {
    loop_.Post([done = std::move(done), ack = std::move(ack)] { done(ack); });
  };
  if (const auto known = terminations_.find(id);
      known != terminations_.end() && known->second.kind == Kind::kConfirmed) {
    return answer(known->second);
  }
  if (Inference* inference = Find(id); inference != nullptr && !inference->in_worker) {
    BeginCancel(*inference, EndCause::kTerminated);
    return answer({Kind::kConfirmed, {}, "dequeued", {}});
  }
  Held* held = nullptr;
  if (const Inference* inference = Find(id)) {
    held = FindHeld(inference->allocation);
  } else {
    // Perhaps it ended when its process was killed, and the process is still being waited for.
    for (auto& [number, candidate] : allocations_) {
      if (std::count(candidate.evidence_for.begin(), candidate.evidence_for.end(), id) > 0) held = &candidate;
    }
  }
  if (held == nullptr || held->process->state() == AllocationState::kFreed) {
    return answer({ended_.Contains(id) ? Kind::kAlreadyTerminal : Kind::kNotRunning, {}, {}, {}});
  }
  if (std::count(held->evidence_for.begin(), held->evidence_for.end(), id) == 0) held->evidence_for.push_back(id);
  while (terminations_.size() >= kMaxTerminations) terminations_.erase(terminations_.begin());
  const std::string allocation = held->process->plan().id;
  auto once = std::make_shared<std::function<void(InferenceTerminationAck)>>(std::move(done));
  EndWaiter waiter;
  waiter.ended = [once, allocation](const DeathVerdict& verdict) {
    if (*once) std::exchange(*once, nullptr)({Kind::kConfirmed, allocation, verdict.how, {}});
  };
  waiter.unconfirmed = [once, allocation, limit = settings_.deadlines.confirm] {
    if (!*once) return;
    std::exchange(*once, nullptr)({Kind::kUnconfirmed,
                                   allocation,
                                   {},
                                   fmt::format("killed, but not gone after {} ms; still charged, still being tried",
                                               limit / std::chrono::milliseconds(1))});
  };
  held->waiters.push_back(std::move(waiter));
  held->process->Stop(StopCause::kTerminate, Allocation::Patience::kNone, fmt::format("terminate {}", id));
}

void Supervisor::Release(std::string_view model, const ReleaseOptions& options,
                         std::function<void(absl::StatusOr<bool>)> done) {
  std::vector<Held*> found;
  for (auto& [number, held] : allocations_) {
    if (held.process->plan().model == model && held.process->state() != AllocationState::kFreed) found.push_back(&held);
  }
  if (found.empty()) {
    loop_.Post([done = std::move(done)] { done(false); });
    return;
  }
  auto gathering = std::make_shared<Gathering>();
  gathering->left = found.size();
  gathering->done = [done = std::move(done), name = std::string(model)](Gathering& all) {
    if (all.unconfirmed.empty()) return done(true);
    done(Error(Reason::kPendingTeardown, fmt::format("{}: killed, but not gone yet; still charged, still being tried",
                                                     fmt::join(all.unconfirmed, ", "))));
  };
  const Duration drain = options.force               ? Duration(0)
                         : options.drain.count() > 0 ? Duration(options.drain)
                                                     : settings_.deadlines.drain;
  for (Held* held : found) {
    auto counted = std::make_shared<bool>(false);
    EndWaiter waiter;
    waiter.ended = [gathering, counted](const DeathVerdict&) {
      if (!std::exchange(*counted, true)) gathering->One();
    };
    waiter.unconfirmed = [gathering, counted, id = held->process->plan().id] {
      if (std::exchange(*counted, true)) return;
      gathering->unconfirmed.push_back(id);
      gathering->One();
    };
    held->waiters.push_back(std::move(waiter));
    const bool busy = !OnAllocation(held->process->plan().number).empty();
    if (busy && drain > Duration(0) && held->process->state() < AllocationState::kTeardown) {
      BeginDrain(*held, drain);
    } else {
      held->process->Stop(StopCause::kRelease, Allocation::Patience::kNone);
    }
  }
}

void Supervisor::BeginDrain(Held& held, Duration drain) {
  const admission::AllocationId number = held.process->plan().number;
  Coordinator().StopRouting(number);
  // A later, shorter drain wins; a longer one changes nothing.
  if (held.draining && held.drain_timer != nullptr && held.drain_timer->at() <= loop_.now() + drain) return;
  held.draining = true;
  held.process->Tell(AllocationEvent::kDrain);
  held.drain_timer = std::make_unique<Timer>(loop_);
  held.drain_timer->Arm(drain, [this, number] { OnDrainDeadline(number); });
}

void Supervisor::OnDrainDeadline(admission::AllocationId number) {
  Held* held = FindHeld(number);
  if (held == nullptr) return;
  const EndCause cause = stopping_ ? EndCause::kShutdown : EndCause::kReleased;
  std::vector<std::string> ids;
  for (const Inference* inference : OnAllocation(number)) ids.push_back(inference->id);
  for (const std::string& id : ids) Cancel(id, cause);
  held = FindHeld(number);
  if (held == nullptr || held->process->state() >= AllocationState::kTeardown) return;
  held->drain_timer->Arm(settings_.deadlines.cancel, [this, number, cause] {
    if (Held* late = FindHeld(number)) {
      late->process->Stop(cause == EndCause::kShutdown ? StopCause::kShutdown : StopCause::kRelease,
                          Allocation::Patience::kTerm);
    }
  });
}

void Supervisor::ReleaseIdle(Duration idle_for, std::function<void(ReleaseIdleResult)> done) {
  const std::vector<admission::AllocationId> chosen = Coordinator().ReleaseIdle(idle_for);
  auto gathering = std::make_shared<Gathering>();
  gathering->left = 1;  // this call itself
  gathering->done = [this, done = std::move(done)](Gathering& all) {
    loop_.Post([done, result = ReleaseIdleResult{all.released, all.unconfirmed}] { done(result); });
  };
  for (const admission::AllocationId number : chosen) {
    Held* held = FindHeld(number);
    if (held == nullptr) continue;
    ++gathering->left;
    auto counted = std::make_shared<bool>(false);
    const std::string model = held->process->plan().model;
    held->waiters.push_back({[gathering, counted, model](const DeathVerdict&) {
                               if (std::exchange(*counted, true)) return;
                               gathering->released.push_back(model);
                               gathering->One();
                             },
                             [gathering, counted, model] {
                               if (std::exchange(*counted, true)) return;
                               gathering->unconfirmed.push_back(model);
                               gathering->One();
                             }});
    held->process->Stop(StopCause::kIdle, Allocation::Patience::kNone);
  }
  gathering->One();
}

void Supervisor::ArmIdleSweep() {
  if (settings_.idle_release <= Duration(0) || stopping_) return idle_timer_.Cancel();
  std::optional<Duration> next;
  for (const auto& [number, entry] : coordinator_->ledger().entries()) {
    if (entry.state != AllocationState::kIdle || coordinator_->pinned(entry.facts->model)) continue;
    const Duration due = entry.last_used + settings_.idle_release;
    next = std::min(next.value_or(due), due);
  }
  if (!next.has_value()) return idle_timer_.Cancel();
  const Duration left = std::clamp(*next - loop_.clock().Boottime(), Duration(0), kIdleRecheck);
  idle_timer_.Arm(left, [this] {
    Coordinator().ReleaseIdle(settings_.idle_release);
    ProcessActions();
    ArmIdleSweep();
  });
}

// A lease has ended, or begun: what the ledger says of the allocation is told to its life cycle.
void Supervisor::AfterUse(admission::AllocationId number) {
  Held* held = FindHeld(number);
  if (held == nullptr) return;
  SyncBusy(*held);
  const auto* entry = coordinator_->ledger().Find(number);
  const bool unused = entry != nullptr && entry->leases.empty() && entry->state != AllocationState::kTeardown;
  if (unused && (held->draining || stopping_)) {
    held->process->Stop(stopping_ ? StopCause::kShutdown : StopCause::kRelease, Allocation::Patience::kNone);
  }
  ArmIdleSweep();
}

void Supervisor::SyncBusy(Held& held) {
  const auto* entry = coordinator_->ledger().Find(held.process->plan().number);
  if (entry == nullptr) return;
  const AllocationState now = held.process->state();
  if (now == AllocationState::kIdle && entry->state == AllocationState::kBusy) {
    held.process->Tell(AllocationEvent::kWork);
  } else if (now == AllocationState::kBusy && entry->state == AllocationState::kIdle) {
    held.process->Tell(AllocationEvent::kRest);
  } else {
    return;
  }
  Rebalance();
}

void Supervisor::Shutdown(Duration drain, std::function<void()> done) {
  if (stopped_) {
    loop_.Post(std::move(done));
    return;
  }
  if (stopping_) {
    // A second, more hurried call: everything that still drains is cut short.
    auto earlier = std::exchange(stopped_done_, nullptr);
    stopped_done_ = [earlier = std::move(earlier), done = std::move(done)] {
      if (earlier) earlier();
      done();
    };
  } else {
    stopping_ = true;
    stopped_done_ = std::move(done);
    idle_timer_.Cancel();
    inspector_.Stop();
  }
  std::vector<std::string> waiting;
  for (const auto& [id, inference] : inferences_) {
    if (!inference->in_worker) waiting.push_back(id);
  }
  EndRequests(waiting, OffloadError::Of(Reason::kShuttingDown, "the daemon is stopping"), false);
  std::vector<Held*> all;
  for (auto& [number, held] : allocations_) all.push_back(&held);
  for (Held* held : all) {
    const bool busy = !OnAllocation(held->process->plan().number).empty();
    if (busy && drain > Duration(0) && held->process->state() < AllocationState::kTeardown) {
      BeginDrain(*held, drain);
    } else if (busy && held->process->state() < AllocationState::kTeardown) {
      held->drain_timer = std::make_unique<Timer>(loop_);
      OnDrainDeadline(held->process->plan().number);
    } else {
      held->process->Stop(StopCause::kShutdown, Allocation::Patience::kNone);
    }
  }
  const auto& limits = settings_.deadlines;
  // A process in uninterruptible sleep may never go; the daemon does not wait for it for ever.
  shutdown_timer_.Arm(drain + limits.cancel + limits.term + 2 * limits.confirm, [this] { GiveUpShutdown(); });
  CheckShutdown();
}

void Supervisor::CheckShutdown() {
  if (!stopping_ || stopped_ || !allocations_.empty() || inspector_.running() > 0) return;
  // Requests whose callers hold their tickets end when those come back.
  const bool waiting = std::any_of(inferences_.begin(), inferences_.end(),
                                   [](const auto& entry) { return entry.second->state != RequestState::kAdmitted; });
  if (waiting) return;
  stopped_ = true;
  shutdown_timer_.Cancel();
  loop_.Post([done = std::exchange(stopped_done_, nullptr)] { done(); });
}

void Supervisor::GiveUpShutdown() {
  if (stopped_) return;
  for (const auto& [number, held] : allocations_) {
    Warn(fmt::format("{}: pid {} was killed and is not gone; leaving it to the kernel", held.process->plan().id,
                     held.process->pid()));
  }
  std::vector<std::string> left;
  for (const auto& [id, inference] : inferences_) left.push_back(id);
  EndRequests(left, OffloadError::Of(Reason::kShuttingDown, "the daemon is stopping"), false);
  stopped_ = true;
  loop_.Post([done = std::exchange(stopped_done_, nullptr)] { done(); });
}

}  // namespace bulkhead::supervisor
