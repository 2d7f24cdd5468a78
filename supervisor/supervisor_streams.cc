// Requests inside a worker: handing over, what comes back, and gentle ends.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/sys.h"
#include "bulkhead/v1/worker.pb.h"
#include "supervisor/supervisor.h"

namespace bulkhead::supervisor {
namespace {

absl::Status Violation(std::string what) { return Error(Reason::kWorkerProtocolError, std::move(what)); }

uint64_t ChooseSeed() {
  uint64_t seed = 0;
  sys::GetRandom(&seed, sizeof(seed));
  // Fits a signed number and a JSON one: people copy it.
  return seed >> 11;
}

// The limit its first worker had: another one's context may be larger.
uint32_t TokensInAll(const Inference& inference) {
  const auto room = inference.context - std::min(inference.context, static_cast<uint32_t>(inference.prompt_ids.size()));
  return inference.request.max_tokens == 0 ? room : std::min(inference.request.max_tokens, room);
}

v1::DaemonFrame GenerateFrame(const Inference& inference) {
  v1::DaemonFrame frame;
  v1::WorkerGenerate& generate = *frame.mutable_generate();
  const OffloadRequest& request = inference.request;
  const bool again = inference.started;
  generate.set_handle(inference.handle);
  generate.set_inference_id(inference.id);
  generate.set_tenant(request.uid);
  if (again) {
    generate.mutable_token_ids()->mutable_ids()->Add(inference.prompt_ids.begin(), inference.prompt_ids.end());
  } else if (const auto* prompt = std::get_if<std::string>(&request.input)) {
    generate.set_prompt(*prompt);
  } else if (const auto* messages = std::get_if<std::vector<v1::Message>>(&request.input)) {
    generate.mutable_messages()->mutable_messages()->Add(messages->begin(), messages->end());
  } else {
    const auto& ids = std::get<std::vector<int32_t>>(request.input);
    generate.mutable_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
  }
  generate.mutable_resume_ids()->Add(inference.ids.begin(), inference.ids.end());
  *generate.mutable_sampling() = request.sampling;
  generate.set_max_tokens(again ? TokensInAll(inference) : request.max_tokens);
  generate.set_priority(request.priority);
  generate.set_now_unix_s(request.now_unix_s);
  return frame;
}

v1::DaemonFrame TokenizeFrame(const Inference& inference) {
  v1::DaemonFrame frame;
  v1::WorkerTokenize& tokenize = *frame.mutable_tokenize();
  tokenize.set_handle(inference.handle);
  tokenize.set_text(std::get<std::string>(inference.request.input));
  tokenize.set_add_special(inference.add_special);
  tokenize.set_parse_special(inference.parse_special);
  return frame;
}

uint64_t Nanoseconds(Duration duration) { return static_cast<uint64_t>(std::max(duration, Duration(0)).count()); }

}  // namespace

void Supervisor::Send(Inference& inference) {
  Held* held = FindHeld(inference.allocation);
  // A worker on its way out takes nothing; once it was waited for, what it had is tried again or ended.
  if (held != nullptr && held->process->state() >= AllocationState::kTeardown &&
      held->process->state() < AllocationState::kFreed) {
    return;
  }
  if (held == nullptr || !admission::IsReady(held->process->state())) {
    EndError(inference, OffloadError::Of(Reason::kWorkerTerminated, "its worker ended before the request reached it"));
    return;
  }
  if (std::exchange(inference.held_back, false)) --held_back_;
  if (MustHoldBack(inference)) {
    inference.held_back = true;
    ++held_back_;
    return;
  }
  if (!inference.request.sampling.has_seed()) inference.request.sampling.set_seed(ChooseSeed());
  inference.handle = ++next_handle_;
  inference.in_worker = true;
  if (inference.handed_at == Duration(0)) inference.handed_at = loop_.now();
  inference.state = Step(inference.state, RequestEvent::kHandOver).next;
  by_handle_[inference.handle] = &inference;
  const bool generates = inference.kind == RequestKind::kGenerate;
  held->process->Send(generates ? GenerateFrame(inference) : TokenizeFrame(inference));
  UpdateProgress(*held);
  EmitState(inference, held->process->plan().id);
  if (generates && inference.pause_wanted) Pause(inference.id, true);
}

absl::Status Supervisor::OnStarted(Allocation& allocation, const v1::WorkerStarted& started) {
  Inference* inference = ByHandle(started.handle());
  if (inference == nullptr || inference->allocation != allocation.plan().number ||
      inference->kind != RequestKind::kGenerate) {
    return Violation(fmt::format("started with handle {}, which is not running", started.handle()));
  }
  if (inference->run_started) return Violation(fmt::format("handle {} started twice", started.handle()));
  inference->run_started = true;
  if (std::exchange(inference->started, true)) return absl::OkStatus();
  inference->prompt_ids.assign(started.prompt_ids().begin(), started.prompt_ids().end());
  inference->context = started.context();
  StartedEvent event;
  event.inference_id = inference->id;
  event.allocation_id = allocation.plan().id;
  event.seed = inference->request.sampling.seed();
  event.prompt_tokens = static_cast<uint32_t>(inference->prompt_ids.size());
  event.context = inference->context;
  loop_.Post([sink = inference->sink, event = std::move(event)] { sink->OnStarted(event); });
  return absl::OkStatus();
}

absl::Status Supervisor::OnSequence(Allocation& allocation, const v1::SequenceStep& step) {
  Inference* found = ByHandle(step.handle());
  if (found == nullptr || found->allocation != allocation.plan().number || found->kind != RequestKind::kGenerate) {
    return Violation(fmt::format("a step with handle {}, which is not running", step.handle()));
  }
  Inference& inference = *found;
  const bool failed = step.error_reason() != v1::REASON_UNSPECIFIED;
  if (!inference.run_started && !failed && step.finish_reason() != v1::FINISH_REASON_CANCELLED) {
    return Violation(fmt::format("handle {} produced before it started", step.handle()));
  }
  const bool says_something = step.tokens_size() > 0 || !step.text().empty();
  if (step.index() != inference.ids.size() && (!failed || says_something)) {
    return Violation(
        fmt::format("handle {} is at token {}, its step says {}", step.handle(), inference.ids.size(), step.index()));
  }
  if (says_something) {
    if (inference.ids.empty() && step.tokens_size() > 0) inference.first_token_at = loop_.now();
    DeltaEvent delta;
    delta.index = step.index();
    delta.text = step.text();
    delta.tokens.assign(step.tokens().begin(), step.tokens().end());
    for (const v1::Token& token : step.tokens()) inference.ids.push_back(token.id());
    // A runaway worker may not fill the daemon's memory.
    if (inference.ids.size() > inference.context) {
      return Violation(
          fmt::format("handle {} produced more than its context of {} tokens", step.handle(), inference.context));
    }
    inference.state = Step(inference.state, RequestEvent::kToken).next;
    loop_.Post([sink = inference.sink, delta = std::move(delta)] { sink->OnDelta(delta); });
    if (inference.replay.Produced(inference.ids.size())) SendHeldBack(inference.request.model.name);
  }
  if (failed) {
    if (inference.ending.has_value()) {
      EndCancelled(inference);
    } else {
      EndError(inference, OffloadError::Of(static_cast<Reason>(step.error_reason()), step.error_message()));
    }
    return absl::OkStatus();
  }
  if (step.finish_reason() == v1::FINISH_REASON_UNSPECIFIED) return absl::OkStatus();
  DoneEvent done;
  done.finish_reason = step.finish_reason();
  done.stop_string = step.stop_string();
  done.usage = step.usage();
  done.usage.set_queue_ns(Nanoseconds(inference.handed_at - inference.accepted_at));
  if (inference.first_token_at > Duration(0)) {
    done.usage.set_first_token_ns(Nanoseconds(inference.first_token_at - inference.accepted_at));
  }
  if (inference.replay.attempts > 0 && inference.first_token_at > Duration(0)) {
    // The last worker knows its own part only.
    done.usage.set_prefill_ns(Nanoseconds(inference.first_token_at - inference.handed_at));
    done.usage.set_decode_ns(Nanoseconds(loop_.now() - inference.first_token_at));
  }
  const bool owners =
      inference.ending == EndCause::kOwner || (inference.ending == EndCause::kDeadline && !inference.ids.empty());
  if (done.finish_reason == v1::FINISH_REASON_CANCELLED && !owners) {
    if (!inference.ending.has_value()) return Violation(fmt::format("handle {} was not cancelled", step.handle()));
    EndCancelled(inference);
  } else {
    EndDone(inference, std::move(done));
  }
  return absl::OkStatus();
}

absl::Status Supervisor::OnTokenized(Allocation& allocation, const v1::WorkerTokenized& tokenized) {
  Inference* inference = ByHandle(tokenized.handle());
  if (inference == nullptr || inference->allocation != allocation.plan().number ||
      inference->kind != RequestKind::kTokenize) {
    return Violation(fmt::format("tokenized with handle {}, which is not running", tokenized.handle()));
  }
  if (tokenized.reason() != v1::REASON_UNSPECIFIED) {
    EndError(*inference, OffloadError::Of(static_cast<Reason>(tokenized.reason()), tokenized.message()));
    return absl::OkStatus();
  }
  std::vector<int32_t> ids(tokenized.ids().begin(), tokenized.ids().end());
  loop_.Post([done = std::move(inference->tokenized), ids = std::move(ids)] { done(ids); });
  EndDone(*inference, {});
  return absl::OkStatus();
}

bool Supervisor::Cancel(std::string_view id, EndCause cause) {
  Inference* inference = Find(id);
  if (inference == nullptr) return false;
  BeginCancel(*inference, cause);
  return true;
}

void Supervisor::BeginCancel(Inference& inference, EndCause cause) {
  if (!inference.ending.has_value()) inference.ending = cause;
  const RequestStep step = Step(inference.state, RequestEvent::kCancel);
  if (step.action == RequestAction::kEndNow) {
    // Out with its caller: it ends when it comes back.
    if (inference.state == RequestState::kAdmitted && inference.sink == nullptr) return;
    EndCancelled(inference);
    return;
  }
  if (step.action != RequestAction::kCancelInWorker) return;
  inference.state = step.next;
  EmitState(inference);
  Held* held = FindHeld(inference.allocation);
  if (held == nullptr) return;
  if (inference.kind == RequestKind::kTokenize) return;  // over in a moment, and cannot be stopped
  v1::DaemonFrame frame;
  frame.mutable_cancel()->set_handle(inference.handle);
  held->process->Send(frame);
  inference.stall_timer.Cancel();
  UpdateProgress(*held);
  inference.escalation_timer.Arm(settings_.deadlines.cancel, [this, &inference] { Escalate(inference); });
}

// The worker has not confirmed a cancel. Slow is not stuck: only where nothing moved since is it killed.
void Supervisor::Escalate(Inference& inference) {
  Held* held = FindHeld(inference.allocation);
  if (held == nullptr) return;
  const Duration since = loop_.now() - held->process->last_progress();
  if (since < settings_.deadlines.cancel) {
    inference.escalation_timer.Arm(settings_.deadlines.cancel - since, [this, &inference] { Escalate(inference); });
    return;
  }
  held->process->Stop(
      StopCause::kStall, Allocation::Patience::kNone,
      fmt::format("a cancel was not confirmed and nothing moved for {} ms", since / std::chrono::milliseconds(1)));
}

void Supervisor::OnDeadline(Inference& inference) { BeginCancel(inference, EndCause::kDeadline); }

void Supervisor::EndCancelled(Inference& inference) {
  const auto fail = [&](Reason reason, std::string message) {
    EndError(inference, OffloadError::Of(reason, std::move(message)));
  };
  switch (*inference.ending) {
    case EndCause::kDeadline:
      if (inference.ids.empty()) return fail(Reason::kDeadlineExceeded, "the request's deadline passed");
      break;
    case EndCause::kOwner:
      break;
    case EndCause::kOther:
      return fail(Reason::kCancelled, "cancelled by somebody else");
    case EndCause::kClientStalled:
      return fail(Reason::kClientStalled, "the client did not read for too long");
    case EndCause::kReleased:
      return fail(Reason::kModelReleased, "the model was released");
    case EndCause::kShutdown:
      return fail(Reason::kShuttingDown, "the daemon is stopping");
    case EndCause::kTerminated:
      return fail(Reason::kWorkerTerminated, "terminated before a worker ran it");
  }
  DoneEvent done;
  done.finish_reason = v1::FINISH_REASON_CANCELLED;
  done.usage.set_prompt_tokens(static_cast<uint32_t>(inference.prompt_ids.size()));
  done.usage.set_completion_tokens(static_cast<uint32_t>(inference.ids.size()));
  EndDone(inference, std::move(done));
}

bool Supervisor::Pause(std::string_view id, bool paused) {
  Inference* found = Find(id);
  if (found == nullptr || found->kind != RequestKind::kGenerate) return false;
  Inference& inference = *found;
  inference.pause_wanted = paused;
  const RequestStep step = Step(inference.state, paused ? RequestEvent::kPause : RequestEvent::kResume);
  inference.state = step.next;
  if (step.action != RequestAction::kPause && step.action != RequestAction::kResume) return true;
  EmitState(inference);
  Held* held = FindHeld(inference.allocation);
  if (held == nullptr) return true;
  v1::DaemonFrame frame;
  frame.mutable_pause()->set_handle(inference.handle);
  frame.mutable_pause()->set_paused(paused);
  held->process->Send(frame);
  UpdateProgress(*held);
  if (paused) {
    inference.stall_timer.Arm(settings_.deadlines.client_stall,
                              [this, &inference] { BeginCancel(inference, EndCause::kClientStalled); });
  } else {
    inference.stall_timer.Cancel();
  }
  return true;
}

// A worker has to move while some request in it is neither paused nor over.
void Supervisor::UpdateProgress(Held& held) {
  const auto running = OnAllocation(held.process->plan().number);
  held.process->SetExpectProgress(std::any_of(running.begin(), running.end(), [](const Inference* inference) {
    return inference->in_worker && inference->state != RequestState::kPaused;
  }));
}

std::vector<Inference*> Supervisor::OnAllocation(admission::AllocationId number) const {
  std::vector<Inference*> found;
  for (const auto& [id, inference] : inferences_) {
    if (inference->allocation == number || (inference->ticket_id != 0 && inference->allocation == 0 &&
                                            coordinator_->LeaseOf(inference->ticket_id) == number)) {
      found.push_back(inference.get());
    }
  }
  return found;
}

}  // namespace bulkhead::supervisor
