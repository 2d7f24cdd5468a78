#include "engine/runtime/sequence.h"

#include <algorithm>
#include <utility>

namespace bulkhead::engine {
namespace {

uint32_t TokenLimit(const GenerationRequest& request, uint32_t context) {
  const auto prompt = static_cast<uint32_t>(request.prompt_ids.size());
  if (request.max_tokens == 0 || request.max_tokens > context - prompt) return context;
  return prompt + request.max_tokens;
}

uint64_t Nanoseconds(Duration from, Duration to) {
  return static_cast<uint64_t>(std::max(to - from, Duration(0)).count());
}

}  // namespace

absl::StatusOr<SamplingParams> ResolveSampling(const GenerationRequest& request, const SamplingParams& defaults) {
  SamplingParams params = defaults;
  const SamplingOptions& asked = request.sampling;
  params.temperature = asked.temperature.value_or(params.temperature);
  params.top_k = asked.top_k.value_or(params.top_k);
  params.top_p = asked.top_p.value_or(params.top_p);
  params.min_p = asked.min_p.value_or(params.min_p);
  params.repeat_penalty = asked.repeat_penalty.value_or(params.repeat_penalty);
  params.repeat_last_n = asked.repeat_last_n.value_or(params.repeat_last_n);
  params.seed = request.seed;
  params.stop = request.stop;
  params.ignore_eos = request.ignore_eos;
  params.logprobs = request.logprobs;
  RETURN_IF_ERROR(Validate(params));
  return params;
}

Sequence::Sequence(GenerationRequest request, const SamplingParams& params, const LoadedModel& model, uint32_t context,
                   Duration submitted)
    : request_(std::move(request)),
      tokenizer_(model.tokenizer()),
      prompt_tokens_(static_cast<uint32_t>(request_.prompt_ids.size())),
      token_limit_(TokenLimit(request_, context)),
      start_tokens_(prompt_tokens_ + static_cast<uint32_t>(request_.resume_ids.size())),
      salt_{model.model().config().architecture_name + '/' + model.model().config().name, request_.adapter,
            request_.tenant},
      submitted_(submitted),
      tokens_(std::move(request_.prompt_ids)),
      sampler_(params, Banned(model), request_.choice),
      text_(model.tokenizer(), params.stop) {
  tokens_.reserve(std::max(token_limit_, start_tokens_));
  tokens_.insert(tokens_.end(), request_.resume_ids.begin(), request_.resume_ids.end());
  sampler_.Accept(tokens_);
  std::string sent_before;
  for (const int32_t id : request_.resume_ids) {
    if (const auto stop = text_.Push(id, sent_before); stop && !resumed_stop_) resumed_stop_ = stop;
  }
}

std::vector<int32_t> Sequence::Banned(const LoadedModel& model) const {
  if (!request_.ignore_eos) return {};
  const auto ids = model.tokenizer().end_of_generation();
  return {ids.begin(), ids.end()};
}

void Sequence::Adopt(uint32_t computed) {
  // What is computed again was counted the first time.
  if (!rewound_) cached_tokens_ += std::min(computed, prompt_tokens_) - std::min(computed_, prompt_tokens_);
  computed_ = computed;
}

void Sequence::Rewind() {
  computed_ = 0;
  rewound_ = true;
}

void Sequence::MarkServed(Duration now) {
  if (first_served_ == Duration(0)) first_served_ = now;
}

void Sequence::CheckResumed(SequenceOutput& output, Duration now) {
  output.id = id();
  output.index = produced();
  if (resumed_stop_) {
    output.stop_string = request_.stop[*resumed_stop_];
    Finish(FinishReason::kStopString, output, now);
  } else if (tokens_.size() >= token_limit_) {
    Finish(FinishReason::kLength, output, now);
  }
}

void Sequence::Choose(std::span<float> logits, SamplerScratch& scratch, SequenceOutput& output, Duration now) {
  output.id = id();
  output.index = produced();
  const auto token = sampler_.Sample(logits, tokens_.size(), scratch);
  if (!token.ok()) {
    End(FinishReason::kUnspecified, token.status(), output, now);
    return;
  }
  if (first_token_ == Duration(0)) first_token_ = now;
  if (!request_.ignore_eos && tokenizer_.IsEndOfGeneration(token->id)) {
    Finish(FinishReason::kStop, output, now);
    return;
  }
  tokens_.push_back(token->id);
  sampler_.Accept(token->id);
  output.tokens.push_back({token->id, request_.logprobs ? std::optional(token->logprob) : std::nullopt});
  if (const auto stop = text_.Push(token->id, output.text)) {
    output.stop_string = request_.stop[*stop];
    Finish(FinishReason::kStopString, output, now);
  } else if (tokens_.size() >= token_limit_) {
    Finish(FinishReason::kLength, output, now);
  }
}

void Sequence::End(FinishReason finish, absl::Status error, SequenceOutput& output, Duration now) {
  output.id = id();
  output.index = produced() - output.tokens.size();
  if (error.ok()) {
    Finish(finish, output, now);
    return;
  }
  text_.Finish(output.text);
  output.error = std::move(error);
  FillUsage(output.usage, now);
}

void Sequence::Finish(FinishReason finish, SequenceOutput& output, Duration now) {
  text_.Finish(output.text);
  output.finish = finish;
  FillUsage(output.usage, now);
}

void Sequence::FillUsage(GenerationUsage& usage, Duration now) const {
  usage.prompt_tokens = prompt_tokens_;
  usage.completion_tokens = produced();
  usage.cached_tokens = cached_tokens_;
  const bool served = first_served_ != Duration(0);
  const bool chose = first_token_ != Duration(0);
  usage.queue_ns = Nanoseconds(submitted_, served ? first_served_ : now);
  if (served) usage.prefill_ns = Nanoseconds(first_served_, chose ? first_token_ : now);
  if (!chose) return;
  usage.decode_ns = Nanoseconds(first_token_, now);
  usage.first_token_ns = Nanoseconds(submitted_, first_token_);
}

}  // namespace bulkhead::engine
