// A request's way to a worker, and its ends.
#include <fmt/format.h>

#include <utility>

#include "base/sys.h"
#include "bulkhead/v1/worker.pb.h"
#include "supervisor/file_identity.h"
#include "supervisor/model_facts.h"
#include "supervisor/refusal.h"
#include "supervisor/supervisor.h"
#include "supervisor/worker_lease.h"

namespace bulkhead::supervisor {
namespace {

// Lets the offload go on holding a sink that it has handed out.
class SharedSink final : public StreamSink {
 public:
  explicit SharedSink(std::shared_ptr<StreamSink> inner) : inner_(std::move(inner)) {}
  void OnQueued(const QueuedEvent& event) override { inner_->OnQueued(event); }
  void OnLoading(const LoadingEvent& event) override { inner_->OnLoading(event); }
  void OnStarted(const StartedEvent& event) override { inner_->OnStarted(event); }
  void OnResumed(const ResumedEvent& event) override { inner_->OnResumed(event); }
  void OnDelta(const DeltaEvent& event) override { inner_->OnDelta(event); }
  void OnDone(const DoneEvent& event) override { inner_->OnDone(event); }
  void OnError(const OffloadError& error) override { inner_->OnError(error); }

 private:
  std::shared_ptr<StreamSink> inner_;
};

admission::Priority PriorityOf(v1::Priority priority) {
  switch (priority) {
    case v1::PRIORITY_INTERACTIVE:
      return admission::Priority::kInteractive;
    case v1::PRIORITY_BATCH:
      return admission::Priority::kBatch;
    default:
      return admission::Priority::kNormal;
  }
}

struct Handover {
  OffloadRequest request;
  LocalWorkerAdmission ticket;
  std::unique_ptr<StreamSink> sink;
};

}  // namespace

std::unique_ptr<Inference> Supervisor::NewInference(RequestKind kind) {
  auto inference = std::make_unique<Inference>(loop_);
  inference->kind = kind;
  inference->accepted_at = loop_.now();
  return inference;
}

void Supervisor::Accept(std::unique_ptr<Inference> accepted) {
  if (inferences_.contains(accepted->id)) {
    loop_.Post([sink = accepted->sink, id = accepted->id] {
      sink->OnError(OffloadError::Of(Reason::kInvalidRequest, fmt::format("inference {}: the id is in use", id)));
    });
    return;
  }
  Inference& inference = *accepted;
  inferences_.emplace(inference.id, std::move(accepted));
  EmitState(inference);
  if (stopping_) {
    EndError(inference, OffloadError::Of(Reason::kShuttingDown, "the daemon is stopping"));
    return;
  }
  const Duration wait =
      inference.request.queue_deadline.count() > 0 ? Duration(inference.request.queue_deadline) : settings_.queue.wait;
  inference.queue_until = loop_.now() + wait;
  if (inference.request.deadline.count() > 0) {
    inference.deadline_timer.Arm(inference.request.deadline, [this, &inference] { OnDeadline(inference); });
  }
  Identify(inference);
}

// Finds out which file it is and what it needs, from the cache or by inspection.
void Supervisor::Identify(Inference& inference) {
  const ModelSource& model = inference.request.model;
  const auto identity = IdentityOf(model.file == nullptr ? -1 : model.file->get());
  if (!identity.ok()) {
    EndError(inference, OffloadError::Of(identity.status()));
    return;
  }
  if (const auto manifest = inspector_.Cached(*identity)) {
    inference.facts = FactsOf(*manifest, model.name, *identity, settings_);
    AskAdmission(inference);
    return;
  }
  size_t same = 0;
  size_t all = 0;
  for (const auto& [id, other] : inferences_) {
    if (other->facts != nullptr) continue;
    ++all;
    if (other->request.model.name == model.name) ++same;
  }
  if (same > settings_.queue.per_model) {
    EndError(inference, QueueFull(fmt::format("model {}", model.name), same - 1, settings_.queue.per_model));
    return;
  }
  if (all > settings_.queue.total) {
    EndError(inference, QueueFull("all models together", all - 1, settings_.queue.total));
    return;
  }
  inference.queue_timer.Arm(inference.queue_until - loop_.now(), [this, &inference] {
    EndError(inference,
             OffloadError::Of(Reason::kQueueDeadlineExceeded,
                              fmt::format("model {}: its header was not read in time", inference.request.model.name)));
  });
  inspector_.Inspect(model.file, *identity,
                     [this, id = inference.id, identity = *identity](const Inspector::Result& result) {
                       if (Inference* waiting = Find(id); waiting != nullptr && waiting->facts == nullptr) {
                         waiting->queue_timer.Cancel();
                         if (result.ok()) {
                           waiting->facts = FactsOf(**result, waiting->request.model.name, identity, settings_);
                           AskAdmission(*waiting);
                         } else {
                           EndError(*waiting, OffloadError::Of(result.status()));
                         }
                       }
                       CheckShutdown();
                     });
}

void Supervisor::AskAdmission(Inference& inference) {
  const auto resident = coordinator_->Resident(inference.facts->model);
  const auto* entry = coordinator_->ledger().Find(resident);
  inference.was_resident = entry != nullptr && admission::IsReady(entry->state);
  if (entry == nullptr) SampleMemory();
  admission::AdmitRequest ask;
  ask.facts = inference.facts;
  ask.context = inference.request.context;
  ask.sequences = inference.sequences;
  ask.exact_shape = inference.kind == RequestKind::kLoad && (ask.context != 0 || ask.sequences != 0);
  ask.priority = PriorityOf(inference.request.priority);
  ask.deadline = inference.queue_until;
  admission::Outcome outcome = Coordinator().Request(ask);
  if (!outcome.ticket && WaitsForBreaker(inference, outcome.refusal.reason, outcome.refusal.retry_after)) return;
  if (!outcome.ticket) {
    EndError(inference, ErrorOf(outcome.refusal));
    return;
  }
  inference.ticket_id = outcome.ticket.id();
  inference.ticket = std::move(outcome.ticket);
  by_ticket_[inference.ticket_id] = &inference;
  ArmCoordinatorTimer();
}

void Supervisor::OnGrant(const admission::GrantAction& action) {
  Inference* found = ByTicket(action.ticket);
  Held* held = FindHeld(action.allocation);
  if (found == nullptr || held == nullptr) return;
  // Its worker died before this was carried out, and the request is queued again.
  if (coordinator_->LeaseOf(action.ticket) != action.allocation) return;
  Inference& inference = *found;
  if (Step(inference.state, RequestEvent::kAdmit).action != RequestAction::kGrant) return;
  inference.state = RequestState::kAdmitted;
  inference.allocation = action.allocation;
  EmitState(inference, held->process->plan().id);
  if (!inference.started) inference.context = held->process->context();
  // An idle worker is busy from here on: a release now has to let it finish.
  SyncBusy(*held);
  LocalWorkerAdmission lease(std::make_unique<WorkerLease>(self_, coordinator_, std::move(inference.ticket),
                                                           inference.id, action.allocation, held->process->plan().id));
  if (inference.kind != RequestKind::kGenerate) {
    inference.lease = std::move(lease);
    if (inference.kind == RequestKind::kTokenize) {
      Send(inference);
    } else {
      OnLoaded(inference, *held);
    }
    return;
  }
  if (std::exchange(inference.handed_out, true)) {
    inference.lease = std::move(lease);
    Send(inference);
    return;
  }
  auto handover = std::make_shared<Handover>();
  auto input = std::move(inference.request.input);
  handover->request = inference.request;
  handover->request.input = std::move(input);
  handover->ticket = std::move(lease);
  handover->sink = std::make_unique<SharedSink>(std::move(inference.sink));
  loop_.Post([handover, admitted = std::move(inference.admitted)] {
    admitted(std::move(handover->request), std::move(handover->ticket), std::move(handover->sink));
  });
}

void Supervisor::OnLoaded(Inference& inference, Held& held) {
  const Allocation& process = *held.process;
  if (inference.pin) Coordinator().SetPinned(inference.facts->model, true);
  LoadResult result;
  result.model = inference.facts->model;
  result.allocation_id = process.plan().id;
  result.context = process.context();
  result.sequences = process.sequences();
  if (const auto* entry = coordinator_->ledger().Find(process.plan().number)) {
    result.charge_bytes = entry->PrivateCharge() + entry->estimate.weights;
  }
  result.already_resident = inference.was_resident;
  loop_.Post([loaded = std::move(inference.loaded), result] { loaded(result); });
  EndDone(inference, {});
}

void Supervisor::Run(OffloadRequest request, LocalWorkerAdmission ticket, std::shared_ptr<StreamSink> sink) {
  const auto refuse = [&](OffloadError error) {
    loop_.Post([sink, error = std::move(error)] { sink->OnError(error); });
  };
  // Only leases of ours are worth anything here.
  const auto* lease = dynamic_cast<const WorkerLease*>(ticket.lease());
  Inference* found = lease == nullptr ? nullptr : Find(lease->inference());
  if (found == nullptr || found->state != RequestState::kAdmitted || found->sink != nullptr) {
    refuse(OffloadError::Of(Reason::kInternal,
                            fmt::format("inference {}: no work without admission", request.inference_id)));
    return;
  }
  Inference& inference = *found;
  inference.sink = std::move(sink);
  inference.lease = std::move(ticket);
  inference.request.input = std::move(request.input);
  if (inference.lost.has_value()) {
    EndError(inference, *inference.lost);
    return;
  }
  if (inference.ending.has_value()) {
    EndCancelled(inference);
    return;
  }
  if (inference.worker_lost) {
    Replay(inference, Reason::kWorkerCrashed);
    return;
  }
  Send(inference);
}

// A ticket that was given back unused: its request never comes.
void Supervisor::LeaseDropped(const std::string& id, admission::AllocationId number) {
  if (Inference* inference = Find(id);
      inference != nullptr && inference->state == RequestState::kAdmitted && inference->sink == nullptr) {
    Forget(*inference);
  }
  AfterUse(number);
}

void Supervisor::EndDone(Inference& inference, DoneEvent done) {
  if (inference.sink != nullptr) {
    loop_.Post([sink = inference.sink, done = std::move(done)] { sink->OnDone(done); });
  }
  inference.state = RequestState::kDone;
  EmitState(inference);
  Forget(inference);
}

void Supervisor::EndError(Inference& inference, OffloadError error) {
  if (inference.state == RequestState::kAdmitted && inference.sink == nullptr) {
    // The caller has the sink; he hears it when he comes back with the ticket.
    if (!inference.lost.has_value()) inference.lost = std::move(error);
    return;
  }
  inference.state = RequestState::kFailed;
  EmitState(inference, std::string(NameOf(error.reason)));
  if (inference.sink != nullptr) {
    loop_.Post([sink = inference.sink, error = std::move(error)] { sink->OnError(error); });
  }
  Forget(inference);
}

// The inference goes, its lease with it: that order matters, since the end of the lease asks what is still running.
void Supervisor::Forget(Inference& inference) {
  by_ticket_.erase(inference.ticket_id);
  if (inference.in_worker) by_handle_.erase(inference.handle);
  if (inference.held_back) --held_back_;
  const auto found = inferences_.find(inference.id);
  const std::unique_ptr<Inference> last = std::move(found->second);
  inferences_.erase(found);
  ended_.Add(last->id);
  Coordinator();
  last->lease = LocalWorkerAdmission();
  last->ticket.Drop();
  if (const auto held = FindHeld(last->allocation)) UpdateProgress(*held);
  SendHeldBack(last->request.model.name);
  CheckShutdown();
}

Inference* Supervisor::Find(std::string_view id) const {
  const auto found = inferences_.find(id);
  return found == inferences_.end() ? nullptr : found->second.get();
}

Inference* Supervisor::ByTicket(admission::TicketId ticket) const {
  const auto found = by_ticket_.find(ticket);
  return found == by_ticket_.end() ? nullptr : found->second;
}

Inference* Supervisor::ByHandle(uint64_t handle) const {
  const auto found = by_handle_.find(handle);
  return found == by_handle_.end() ? nullptr : found->second;
}

}  // namespace bulkhead::supervisor
