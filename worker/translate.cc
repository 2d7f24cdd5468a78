#include "worker/translate.h"

#include <fmt/format.h>

#include "engine/tokenizer/detokenizer.h"

namespace bulkhead::worker {
namespace {

void Fill(const engine::GenerationUsage& from, v1::Usage* to) {
  to->set_prompt_tokens(from.prompt_tokens);
  to->set_completion_tokens(from.completion_tokens);
  to->set_cached_tokens(from.cached_tokens);
  to->set_queue_ns(from.queue_ns);
  to->set_prefill_ns(from.prefill_ns);
  to->set_decode_ns(from.decode_ns);
  to->set_first_token_ns(from.first_token_ns);
}

engine::SamplingOptions ToSampling(const v1::Sampling& from) {
  engine::SamplingOptions to;
  if (from.has_temperature()) to.temperature = from.temperature();
  if (from.has_top_k()) to.top_k = from.top_k();
  if (from.has_top_p()) to.top_p = from.top_p();
  if (from.has_min_p()) to.min_p = from.min_p();
  if (from.has_repeat_penalty()) to.repeat_penalty = from.repeat_penalty();
  if (from.has_repeat_last_n()) to.repeat_last_n = from.repeat_last_n();
  return to;
}

engine::Priority ToPriority(v1::Priority priority) {
  switch (priority) {
    case v1::PRIORITY_INTERACTIVE:
      return engine::Priority::kInteractive;
    case v1::PRIORITY_BATCH:
      return engine::Priority::kBatch;
    default:
      return engine::Priority::kNormal;
  }
}

}  // namespace

absl::StatusOr<engine::GenerationRequest> ToRequest(const v1::WorkerGenerate& generate) {
  if (!generate.sampling().has_seed()) return Error(Reason::kInvalidRequest, "generate: no seed was chosen");
  engine::GenerationRequest request;
  request.id = generate.handle();
  request.resume_ids.assign(generate.resume_ids().begin(), generate.resume_ids().end());
  request.sampling = ToSampling(generate.sampling());
  request.seed = generate.sampling().seed();
  request.max_tokens = generate.max_tokens();
  request.stop.assign(generate.sampling().stop().begin(), generate.sampling().stop().end());
  request.ignore_eos = generate.sampling().ignore_eos();
  request.logprobs = generate.sampling().logprobs() > 0;
  request.priority = ToPriority(generate.priority());
  request.tenant = generate.tenant();
  return request;
}

std::vector<engine::ChatMessage> ToMessages(const v1::WorkerMessages& messages) {
  std::vector<engine::ChatMessage> result;
  for (const v1::Message& message : messages.messages()) result.push_back({message.role(), message.content()});
  return result;
}

absl::StatusOr<engine::MemoryShape> ToShape(const v1::Configure& configure) {
  engine::MemoryShape shape;
  shape.context = configure.context();
  shape.sequences = configure.sequences();
  shape.state_snapshots = engine::kStateSnapshotsPerSequence * shape.sequences;
  if (configure.kv_type() == "f32") {
    shape.kv_type = engine::KvType::kF32;
  } else if (!configure.kv_type().empty() && configure.kv_type() != "f16") {
    return Error(Reason::kInvalidRequest, fmt::format("kv_type '{}': neither f16 nor f32", configure.kv_type()));
  }
  return shape;
}

void Fill(const engine::SequenceOutput& output, v1::SequenceStep* step) {
  step->set_handle(output.id);
  step->set_index(output.index);
  step->set_text(output.text);
  for (const engine::ProducedToken& token : output.tokens) {
    v1::Token* added = step->add_tokens();
    added->set_id(token.id);
    if (token.logprob.has_value()) added->set_logprob(*token.logprob);
  }
  if (!output.error.ok()) {
    step->set_error_reason(ToReason(ReasonOf(output.error)));
    step->set_error_message(Printable(Message(output.error)));
  } else if (output.terminal()) {
    step->set_finish_reason(static_cast<v1::FinishReason>(output.finish));
    step->set_stop_string(output.stop_string);
    Fill(output.usage, step->mutable_usage());
  }
}

void Fill(const engine::EngineSnapshot& from, v1::EngineSnapshot* to) {
  to->set_max_sequences(from.max_sequences);
  to->set_active_prefill(from.active_prefill);
  to->set_active_decode(from.active_decode);
  to->set_waiting(from.waiting);
  to->set_paused(from.paused);
  to->set_kv_pages_total(from.kv_pages_total);
  to->set_kv_pages_free(from.kv_pages_free);
  to->set_kv_pages_reserved(from.kv_pages_reserved);
  to->set_capacity_blocked(from.capacity_blocked);
  to->set_oldest_waiting_ns(from.oldest_waiting_ns);
  to->set_tokens_prefilled(from.tokens_prefilled);
  to->set_tokens_decoded(from.tokens_decoded);
  to->set_steps(from.steps);
  to->set_context(from.context);
  to->set_kv_pages_idle(from.kv_pages_idle);
  to->set_preemptions(from.preemptions);
  to->set_prefix_hits(from.cache.hits);
  to->set_prefix_misses(from.cache.misses);
  to->set_prefix_evictions(from.cache.evictions);
  to->set_prefix_saved_tokens(from.cache.saved_tokens);
  to->set_prefix_entries(from.cache.entries);
  to->set_heartbeat_age_ns(from.heartbeat_age_ns);
  to->set_healthy(from.healthy);
}

v1::Reason ToReason(Reason reason) { return static_cast<v1::Reason>(reason); }

std::string Printable(std::string_view text) {
  std::string result;
  engine::Detokenizer valid;
  valid.Push(text, result);
  (void)valid.Finish(result);
  for (char& c : result) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return result;
}

}  // namespace bulkhead::worker
