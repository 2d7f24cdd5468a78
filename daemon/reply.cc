#include "daemon/reply.h"

#include "base/reason.h"

namespace bulkhead::daemon {
namespace {

std::string_view HintFor(Reason reason) {
  switch (reason) {
    case Reason::kModelNotFound:
      return "bulkhead models";
    case Reason::kInferenceNotFound:
      return "bulkhead ps --requests";
    case Reason::kDisabledByPolicy:
      return "bulkhead policy";
    case Reason::kExceedsCeiling:
    case Reason::kContextTooLarge:
      return "bulkhead preflight MODEL --context N";
    case Reason::kWaitingForMemory:
    case Reason::kInsufficientLiveMemory:
    case Reason::kPendingTeardown:
    case Reason::kQueueFull:
    case Reason::kQueueDeadlineExceeded:
      return "bulkhead ps --memory";
    case Reason::kBreakerOpen:
    case Reason::kWorkerCrashed:
    case Reason::kWorkerOom:
    case Reason::kWorkerStalled:
      return "bulkhead deaths";
    case Reason::kTemplateUnsupported:
      return "bulkhead run MODEL --raw PROMPT";
    case Reason::kSpawnFailed:
    case Reason::kWorkerBuildMismatch:
    case Reason::kLiveMemoryUnknown:
      return "bulkhead doctor";
    default:
      return "";
  }
}

}  // namespace

void Fill(v1::ErrorEvent* out, const supervisor::OffloadError& error) {
  out->set_code(static_cast<uint32_t>(InfoOf(error.reason).code));
  out->set_reason(static_cast<v1::Reason>(error.reason));
  out->set_message(error.message);
  out->set_retryable(error.retryable);
  out->set_retry_after_ms(error.retry_after_ms);
  out->set_death_id(error.death_id);
  out->set_length(error.length);
  out->set_limit(error.limit);
  out->set_hint(error.hint.empty() ? std::string(HintFor(error.reason)) : error.hint);
}

void Fill(v1::ErrorEvent* out, const absl::Status& status) { Fill(out, supervisor::OffloadError::Of(status)); }

void Fill(v1::Queued* out, const supervisor::QueuedEvent& event) {
  out->set_position(event.position);
  out->set_reason(event.reason);
}

void Fill(v1::Loading* out, const supervisor::LoadingEvent& event) {
  out->set_phase(event.phase);
  out->set_done(event.done);
  out->set_total(event.total);
}

void Fill(v1::Started* out, const supervisor::StartedEvent& event) {
  out->set_inference_id(event.inference_id);
  out->set_allocation_id(event.allocation_id);
  out->set_seed(event.seed);
  out->set_prompt_tokens(event.prompt_tokens);
  out->set_context(event.context);
}

void Fill(v1::Resumed* out, const supervisor::ResumedEvent& event) {
  out->set_attempt(event.attempt);
  out->set_reason(static_cast<v1::Reason>(event.reason));
  out->set_exact(event.exact);
}

void Fill(v1::Delta* out, const supervisor::DeltaEvent& event) {
  out->set_index(event.index);
  out->set_text(event.text);
  for (const v1::Token& token : event.tokens) *out->add_tokens() = token;
}

void Fill(v1::Done* out, const supervisor::DoneEvent& event) {
  out->set_finish_reason(event.finish_reason);
  *out->mutable_usage() = event.usage;
  out->set_stop_string(event.stop_string);
}

void Fill(v1::ResidentModel* out, const supervisor::ResidentModel& model) {
  out->set_model(model.model);
  out->set_allocation_id(model.allocation_id);
  out->set_state(std::string(model.state));
  out->set_pid(model.pid);
  out->set_charge_bytes(model.charge_bytes);
  out->set_estimate_bytes(model.estimate_bytes);
  out->set_measured_bytes(model.measured_bytes);
  out->set_shared_bytes(model.shared_bytes);
  out->set_in_flight(model.in_flight);
  out->set_waiting(model.waiting);
  out->set_pinned(model.pinned);
  out->set_context(model.context);
  out->set_sequences(model.sequences);
  out->set_threads(model.threads);
  out->set_resident_ms(model.resident_ms);
  out->set_idle_ms(model.idle_ms);
  out->set_deadline_in_ms(model.deadline_in_ms);
  out->set_uid(model.uid);
  *out->mutable_engine() = model.engine;
  out->set_private_bytes(model.private_bytes);
  out->set_file_bytes(model.file_bytes);
  out->set_share_bytes(model.share_bytes);
  out->set_heartbeat_ms(model.heartbeat_ms);
}

void Fill(v1::RequestInfo* out, const supervisor::RequestInfo& request) {
  out->set_inference_id(request.inference_id);
  out->set_model(request.model);
  out->set_allocation_id(request.allocation_id);
  out->set_state(std::string(request.state));
  out->set_uid(request.uid);
  out->set_age_ms(request.age_ms);
  out->set_prompt_tokens(request.prompt_tokens);
  out->set_produced(request.produced);
  out->set_priority(request.priority);
}

void Fill(v1::Budget* out, const supervisor::BudgetSnapshot& budget) {
  out->set_profile(budget.profile);
  out->set_ceiling_bytes(budget.ceiling_bytes);
  out->set_charged_bytes(budget.charged_bytes);
  out->set_promised_bytes(budget.promised_bytes);
  out->set_live_headroom_bytes(budget.live_headroom_bytes);
  out->set_policy_generation(budget.policy_generation);
  out->set_waiting(budget.waiting);
  out->set_oldest_waiting_ms(budget.oldest_waiting_ms);
}

void Fill(v1::LoadReply* out, const supervisor::LoadResult& result) {
  out->set_model(result.model);
  out->set_allocation_id(result.allocation_id);
  out->set_context(result.context);
  out->set_sequences(result.sequences);
  out->set_charge_bytes(result.charge_bytes);
  out->set_already_resident(result.already_resident);
}

void Fill(v1::PreflightReply* out, const supervisor::PreflightReport& report) {
  out->set_verdict(report.verdict);
  for (const supervisor::PreflightLine& line : report.lines) {
    v1::PreflightLine* shown = out->add_lines();
    shown->set_what(line.what);
    shown->set_bytes(line.bytes);
    shown->set_note(line.note);
  }
  out->set_context(report.context);
  out->set_sequences(report.sequences);
  out->set_estimate_bytes(report.estimate_bytes);
  for (const std::string& model : report.would_release) out->add_would_release(model);
}

void Fill(v1::TerminateReply* out, const supervisor::InferenceTerminationAck& ack) {
  using Kind = supervisor::InferenceTerminationAck::Kind;
  switch (ack.kind) {
    case Kind::kNotRunning:
      out->set_ack(v1::TerminateReply::NOT_RUNNING);
      break;
    case Kind::kAlreadyTerminal:
      out->set_ack(v1::TerminateReply::ALREADY_TERMINAL);
      break;
    case Kind::kConfirmed:
      out->set_ack(v1::TerminateReply::CONFIRMED);
      break;
    case Kind::kUnconfirmed:
      out->set_ack(v1::TerminateReply::UNCONFIRMED);
      break;
  }
  out->set_allocation_id(ack.allocation_id);
  out->set_how(ack.how);
  out->set_why(ack.why);
}

void Fill(v1::Event* out, const supervisor::LifecycleEvent& event) {
  out->set_at_unix_ns(event.at_wall.count());
  out->set_subject(event.subject);
  out->set_what(std::string(event.what));
  out->set_model(event.model);
  out->set_detail(event.detail);
}

}  // namespace bulkhead::daemon
