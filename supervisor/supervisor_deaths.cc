// What the steps of an allocation's life mean for the ledger, and what its end means for everybody else.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bulkhead/v1/worker.pb.h"
#include "supervisor/supervisor.h"

namespace bulkhead::supervisor {
namespace {

// The sentence of a load that failed is the worker's own; it goes to clients and logs, so it is bounded.
constexpr size_t kMaxMessage = 512;

OffloadError ErrorOf(const Allocation& allocation, const DeathVerdict& verdict, uint64_t death_id) {
  OffloadError error;
  if (allocation.cause() == StopCause::kLoadFailed && verdict.planned && allocation.load_failed().has_value()) {
    const v1::LoadFailed& failed = *allocation.load_failed();
    error = OffloadError::Of(static_cast<Reason>(failed.reason()), failed.message().substr(0, kMaxMessage));
  } else {
    error = OffloadError::Of(verdict.reason, fmt::format("{}: {}", allocation.plan().id, verdict.detail));
    if (!verdict.planned) error.hint = "bulkhead deaths";
  }
  error.death_id = death_id;
  return error;
}

// A file at fault stays at fault: everyone who waits for it would only load it again.
bool IsLasting(Reason reason) {
  return reason == Reason::kModelInvalid || reason == Reason::kModelUnsupported ||
         reason == Reason::kTemplateUnsupported || reason == Reason::kCpuUnsupported ||
         reason == Reason::kWorkerBuildMismatch;
}

}  // namespace

void Supervisor::OnStep(Allocation& allocation, AllocationEvent event, AllocationStep step) {
  const Allocation::Plan& plan = allocation.plan();
  // A deadline that passed while it was spawned has to find it in the ledger: the clock is looked at behind that.
  const bool spawned = step.action == AllocationAction::kAwaitHello;
  admission::AdmissionCoordinator& coordinator = spawned ? *coordinator_ : Coordinator();
  switch (step.action) {
    case AllocationAction::kReject:
      Warn(fmt::format("{}: event {} cannot happen in {}", plan.id, NameOf(event), admission::NameOf(step.next)));
      return;
    case AllocationAction::kIgnore:
      return;
    case AllocationAction::kAwaitHello:
      coordinator.SpawnStarted(plan.number);
      break;
    case AllocationAction::kConfigure:
      coordinator.LoadStarted(plan.number);
      break;
    case AllocationAction::kServe:
      coordinator.LoadFinished(plan.number);
      break;
    case AllocationAction::kKill:
      coordinator.TeardownStarted(plan.number);
      break;
    case AllocationAction::kReap:
      // Also where it ended by itself; one that is STUCK has left service long since.
      if (step.next == AllocationState::kTeardown) coordinator.TeardownStarted(plan.number);
      break;
    case AllocationAction::kSettle:
      coordinator.Reaped(plan.number);
      break;
    case AllocationAction::kRetire:
      if (event == AllocationEvent::kSpawnFailed) {
        coordinator.SpawnFailed(plan.number);
      } else {
        coordinator.Settle(plan.number);
      }
      break;
    case AllocationAction::kAnswer:
      coordinator.Free(plan.number);
      break;
    case AllocationAction::kRetryKill:
      coordinator.KillUnconfirmed(plan.number);
      if (Held* held = FindHeld(plan.number)) {
        for (EndWaiter& waiter : held->waiters) {
          if (waiter.unconfirmed) loop_.Post(std::exchange(waiter.unconfirmed, nullptr));
        }
      }
      break;
    case AllocationAction::kMarkBusy:
    case AllocationAction::kMarkIdle:
    case AllocationAction::kDrain:
    case AllocationAction::kHasten:
      break;
  }
  // An event within a state (a second stop, the exit of a process being torn down) is no news to anybody outside.
  Held* held = FindHeld(plan.number);
  if (held == nullptr || std::exchange(held->announced, step.next) == step.next) return;
  Emit(plan.id, admission::NameOf(step.next), plan.model, std::string(NameOf(event)));
}

void Supervisor::OnLoading(Allocation& allocation, const LoadingEvent& progress) {
  ReportProgress(allocation, progress);
}

void Supervisor::ReportProgress(Allocation& allocation, const LoadingEvent& progress) {
  for (const Inference* waiting : OnAllocation(allocation.plan().number)) {
    if (waiting->sink == nullptr || waiting->state != RequestState::kQueued) continue;
    loop_.Post([sink = waiting->sink, progress] { sink->OnLoading(progress); });
  }
}

void Supervisor::OnReady(Allocation& allocation) {
  Held* held = FindHeld(allocation.plan().number);
  if (held == nullptr) return;
  SyncBusy(*held);
  const auto found = models_.find(allocation.plan().model);
  if (found == models_.end() || found->second.breaker.state() != Breaker::State::kTrial) return;
  // READY alone proves nothing: the breaker closes after healthy service.
  held->healthy_timer = std::make_unique<Timer>(loop_);
  held->healthy_timer->Arm(settings_.breaker.healthy, [this, model = allocation.plan().model] {
    const auto still = models_.find(model);
    if (still == models_.end() || still->second.breaker.state() != Breaker::State::kTrial) return;
    still->second.breaker.Healthy();
    Emit(model, "breaker-closed", model);
  });
}

void Supervisor::OnMeasured(Allocation& allocation, uint64_t private_bytes) {
  Coordinator().Measured(allocation.plan().number, private_bytes);
}

// Everything about the end of a process happens here, in this order: reaped (already) -> settled -> retired -> answers.
void Supervisor::OnReaped(Allocation& allocation) {
  Held* held = FindHeld(allocation.plan().number);
  if (held == nullptr) return;
  held->drain_timer.reset();
  held->healthy_timer.reset();
  const DeathVerdict verdict = Judge(allocation);
  std::vector<std::string> ids;
  for (const Inference* inference : OnAllocation(allocation.plan().number)) ids.push_back(inference->id);
  const bool try_again = LearnFromOutOfMemory(allocation, verdict);
  const uint64_t death_id = RecordDeath(allocation, verdict, static_cast<uint32_t>(ids.size()));
  if (!verdict.planned) CountDeath(allocation, verdict);

  allocation.Tell(AllocationEvent::kSettled);
  SavePeaks();
  allocation.Tell(AllocationEvent::kRetired);

  const OffloadError error = ErrorOf(allocation, verdict, death_id);
  ReplayOrEnd(ids, *held, verdict, error, try_again);
  if (IsLasting(error.reason)) EndWaitersOf(allocation.plan().model, error);
  loop_.Post([this, number = allocation.plan().number] {
    allocations_.erase(number);
    CheckShutdown();
  });
  AnswerWaiters(*held, verdict);
  Rebalance();
}

DeathVerdict Supervisor::Judge(Allocation& allocation) const {
  DeathEvidence evidence = allocation.Evidence();
  evidence.stderr_tail = allocation.stderr_tail();
  DeathVerdict verdict = Classify(evidence);
  // A load that failed for lack of memory said so itself, in numbers.
  if (const auto& failed = allocation.load_failed(); failed.has_value() && failed->reason() == v1::REASON_WORKER_OOM) {
    verdict.oom = {failed->wanted_bytes(), failed->in_use_bytes(), failed->limit_bytes()};
  }
  return verdict;
}

// True if its requests are worth another try, with a larger estimate.
bool Supervisor::LearnFromOutOfMemory(Allocation& allocation, const DeathVerdict& verdict) {
  if (verdict.oom.wanted_bytes == 0) return false;
  // A worker's word: it may not make the daemon reserve more than the machine has.
  const uint64_t most = std::max<uint64_t>(options_.memory->Machine().total, 1);
  const uint64_t wanted = std::min(verdict.oom.wanted_bytes, most) + std::min(verdict.oom.in_use_bytes, most);
  return Coordinator().RanOutOfMemory(allocation.plan().number, wanted);
}

uint64_t Supervisor::RecordDeath(Allocation& allocation, const DeathVerdict& verdict, uint32_t in_flight) {
  // Idle workers released all day would push the crashes out of the last hundred.
  if (verdict.planned && allocation.cause() != StopCause::kTerminate) return 0;
  const DeathEvidence evidence = allocation.Evidence();
  v1::Death death;
  death.set_allocation_id(allocation.plan().id);
  death.set_model(allocation.plan().passed ? "(descriptor)" : allocation.plan().model);
  death.set_reason(static_cast<v1::Reason>(verdict.reason));
  death.set_phase(std::string(NameOf(evidence.phase)));
  death.set_exit_code(evidence.exit.code);
  death.set_signal(evidence.exit.signal);
  death.set_planned(verdict.planned);
  death.set_at_unix_ns(loop_.clock().Wall().count());
  death.set_lived_ns((loop_.now() - allocation.launched_at()).count());
  death.set_stderr_tail(allocation.stderr_tail());
  death.set_detail(verdict.detail);
  death.set_oom_wanted_bytes(verdict.oom.wanted_bytes);
  death.set_oom_in_use_bytes(verdict.oom.in_use_bytes);
  death.set_oom_limit_bytes(verdict.oom.limit_bytes);
  death.set_requests_in_flight(in_flight);
  if (!verdict.planned) {
    Warn(fmt::format("{}: {}, {} in {}", allocation.plan().id, NameOf(verdict.reason), verdict.how,
                     NameOf(evidence.phase)));
  }
  return deaths_.Add(std::move(death));
}

void Supervisor::CountDeath(Allocation& allocation, const DeathVerdict& verdict) {
  const std::string& name = allocation.plan().model;
  Model& model = models_[name];
  if (!model.breaker.Death(loop_.now(), settings_.breaker)) return;
  Emit(name, "breaker-open", name, verdict.detail);
  OpenBreaker(name, model);
}

void Supervisor::OpenBreaker(const std::string& name, Model& model) {
  const Duration backoff = std::max(model.breaker.until() - loop_.now(), Duration(0));
  Coordinator().SetBlocked(
      name, admission::Verdict::kBreakerOpen, backoff,
      fmt::format("{} deaths in {} s", model.breaker.deaths(), settings_.breaker.window / std::chrono::seconds(1)));
  model.reopening = std::make_unique<Timer>(loop_);
  model.reopening->Arm(backoff, [this, name] {
    const auto found = models_.find(name);
    if (found == models_.end()) return;
    found->second.breaker.LetTrialThrough();
    Emit(name, "breaker-trial", name);
    Coordinator().SetBlocked(name, admission::Verdict::kAllowed);
  });
}

void Supervisor::EndRequests(const std::vector<std::string>& ids, const OffloadError& error, bool try_again) {
  for (const std::string& id : ids) {
    Inference* inference = Find(id);
    if (inference == nullptr) continue;
    if (inference->ending.has_value() && inference->in_worker) {
      EndCancelled(*inference);
    } else if (try_again && inference->state == RequestState::kQueued &&
               Coordinator().Requeue(inference->ticket_id, inference->queue_until)) {
      continue;
    } else {
      EndError(*inference, error);
    }
  }
}

void Supervisor::EndWaitersOf(const std::string& model, const OffloadError& error) {
  std::vector<std::string> ids;
  for (const auto& [id, inference] : inferences_) {
    if (inference->state == RequestState::kQueued && inference->facts != nullptr && inference->facts->model == model) {
      ids.push_back(id);
    }
  }
  EndRequests(ids, error, false);
}

void Supervisor::AnswerWaiters(Held& held, const DeathVerdict& verdict) {
  for (const std::string& id : held.evidence_for) {
    InferenceTerminationAck& ack = terminations_[id];
    ack = {InferenceTerminationAck::Kind::kConfirmed, held.process->plan().id, verdict.how, {}};
    Emit(id, "termination-confirmed", held.process->plan().model, verdict.how);
  }
  for (EndWaiter& waiter : std::exchange(held.waiters, {})) {
    loop_.Post([ended = std::move(waiter.ended), verdict] { ended(verdict); });
  }
}

}  // namespace bulkhead::supervisor
