// What becomes of requests whose worker died: they are admitted once more and go on from the ids they have.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "supervisor/supervisor.h"
#include "supervisor/worker_lease.h"

namespace bulkhead::supervisor {
namespace {

// Another worker would meet the same.
bool IsFinal(const Allocation& allocation, const DeathVerdict& verdict) {
  if (verdict.planned)
    return allocation.cause() == StopCause::kLoadFailed || allocation.cause() == StopCause::kShutdown;
  return verdict.reason == Reason::kModelFileChanged || verdict.reason == Reason::kCpuUnsupported ||
         verdict.reason == Reason::kWorkerBuildMismatch;
}

bool KilledFromOutside(const Allocation& allocation, const DeathVerdict& verdict) {
  return verdict.reason == Reason::kWorkerCrashed && allocation.Evidence().exit.signal == SIGKILL;
}

}  // namespace

void Supervisor::ReplayOrEnd(const std::vector<std::string>& ids, const Held& held, const DeathVerdict& verdict,
                             const OffloadError& error, bool try_again) {
  const Allocation& allocation = *held.process;
  const bool crashed = !verdict.planned && !KilledFromOutside(allocation, verdict);
  std::vector<std::string> rest;
  std::vector<Inference*> again;
  uint32_t running = 0;
  bool quarantined = false;
  for (const std::string& id : ids) {
    Inference* inference = Find(id);
    if (inference == nullptr) continue;
    running += inference->in_worker ? 1 : 0;
    quarantined = quarantined || (inference->in_worker && inference->replay.alone);
    const bool target = std::count(held.evidence_for.begin(), held.evidence_for.end(), id) > 0;
    const bool may = inference->kind == RequestKind::kGenerate && !inference->ending.has_value() && !stopping_ &&
                     inference->request.on_worker_death == v1::ON_WORKER_DEATH_RESUME && !target &&
                     !IsFinal(allocation, verdict);
    if (may) {
      again.push_back(inference);
    } else {
      rest.push_back(id);
    }
  }
  EndRequests(rest, error, try_again);
  for (Inference* inference : again) {
    // One in quarantine ran so that it could be told from the others.
    const bool suspected = inference->replay.alone || !quarantined;
    const bool counts = inference->in_worker ? crashed : crashed && allocation.death_phase() <= WorkerPhase::kLoad;
    const bool more = inference->replay.Died(inference->ids.size(), inference->in_worker, counts, suspected);
    // Alone in its worker it needs no quarantine to be found.
    if (running == 1 && !quarantined) inference->replay.alone = false;
    if (more) {
      Replay(*inference, verdict.reason);
    } else {
      OffloadError last = error;
      last.message += fmt::format("; suspect: it lost {} workers and got no further", inference->replay.attempts + 1);
      EndError(*inference, std::move(last));
    }
  }
  SendHeldBack(allocation.plan().model);
}

void Supervisor::Replay(Inference& inference, Reason why) {
  if (inference.state == RequestState::kAdmitted && inference.sink == nullptr) {
    // Its caller has ticket and sink; when they come back it is queued again.
    inference.worker_lost = true;
    return;
  }
  inference.state = Step(inference.state, RequestEvent::kLostWorker).next;
  if (inference.in_worker) by_handle_.erase(inference.handle);
  if (inference.in_worker || inference.started) {
    ResumedEvent event{++inference.replay.attempts, why, true};
    loop_.Post([sink = inference.sink, event] { sink->OnResumed(event); });
  }
  inference.in_worker = false;
  inference.run_started = false;
  if (std::exchange(inference.held_back, false)) --held_back_;
  inference.worker_lost = false;
  inference.stall_timer.Cancel();
  inference.escalation_timer.Cancel();
  inference.allocation = 0;
  const Duration wait =
      inference.request.queue_deadline.count() > 0 ? Duration(inference.request.queue_deadline) : settings_.queue.wait;
  inference.queue_until = loop_.now() + wait;
  // The pool it ran in is the pool it goes on in: its end at a full context depends on that.
  if (inference.started) inference.request.context = inference.context;
  Emit(inference.id, NameOf(RequestEvent::kLostWorker), inference.request.model.name, std::string(NameOf(why)));
  if (auto* lease = dynamic_cast<WorkerLease*>(inference.lease.lease()); lease != nullptr) {
    inference.ticket = lease->TakeTicket();
    inference.lease = LocalWorkerAdmission();
  }
  if (!Coordinator().Requeue(inference.ticket_id, inference.queue_until)) AskAgain(inference);
  ArmCoordinatorTimer();
}

void Supervisor::AskAgain(Inference& inference) {
  by_ticket_.erase(inference.ticket_id);
  inference.ticket = admission::Ticket();
  inference.ticket_id = 0;
  AskAdmission(inference);
}

// A breaker protects the machine from a model; a stream that had begun waits until it lets a trial through.
bool Supervisor::WaitsForBreaker(Inference& inference, Reason reason, Duration retry_after) {
  if (reason != Reason::kBreakerOpen || inference.replay.fruitless == 0) return false;
  const Duration wait = std::max<Duration>(retry_after, std::chrono::milliseconds(100));
  if (loop_.now() + wait >= inference.queue_until) return false;
  inference.queue_timer.Arm(wait, [this, &inference] { AskAgain(inference); });
  return true;
}

// Of requests in quarantine one at a time runs, and those that are not wait meanwhile, unless they run already.
bool Supervisor::MustHoldBack(const Inference& inference) const {
  if (inference.kind != RequestKind::kGenerate) return false;
  return std::any_of(inferences_.begin(), inferences_.end(), [&](const auto& entry) {
    const Inference& other = *entry.second;
    return &other != &inference && other.in_worker && other.replay.alone &&
           other.request.model.name == inference.request.model.name;
  });
}

void Supervisor::SendHeldBack(const std::string& model) {
  if (held_back_ == 0) return;
  std::vector<std::string> waiting;
  for (const bool alone : {true, false}) {
    for (const auto& [id, inference] : inferences_) {
      if (inference->held_back && inference->replay.alone == alone && inference->request.model.name == model) {
        waiting.push_back(id);
      }
    }
  }
  for (const std::string& id : waiting) {
    Inference* inference = Find(id);
    if (inference == nullptr || !inference->held_back) continue;
    const Held* held = FindHeld(inference->allocation);
    if (held != nullptr && admission::IsReady(held->process->state())) Send(*inference);
  }
}

}  // namespace bulkhead::supervisor
