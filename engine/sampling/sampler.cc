#include "engine/sampling/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/sampling/exact_math.h"

namespace bulkhead::engine {
namespace {

// log of the sum of e^(logit / temperature), which a token's own logit / temperature is held against.
double LogSum(std::span<const float> logits, double scale) {
  const float max = *std::max_element(logits.begin(), logits.end());
  double sums[4] = {};
  for (size_t i = 0; i < logits.size(); ++i) sums[i % 4] += Exp((double{logits[i]} - max) * scale);
  const double sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  return max * scale + (sum > 0 ? Log(sum) : 0);
}

}  // namespace

Sampler::Sampler(const SamplingParams& params, std::span<const int32_t> banned, uint32_t choice)
    : params_(params),
      banned_(banned.begin(), banned.end()),
      choice_(choice),
      penalty_(params.repeat_penalty, static_cast<size_t>(params.repeat_last_n)) {
  changed_.reserve(penalty_.window() + banned_.size());
}

void Sampler::Change(std::span<float> logits) {
  changed_.clear();
  penalty_.Apply(logits, changed_);
  for (const int32_t id : banned_) {
    if (id < 0 || static_cast<size_t>(id) >= logits.size()) continue;
    float& logit = logits[static_cast<size_t>(id)];
    changed_.push_back({logit, id});
    logit = -INFINITY;
  }
}

void Sampler::Restore(std::span<float> logits) const {
  for (auto change = changed_.rbegin(); change != changed_.rend(); ++change) {
    logits[static_cast<size_t>(change->id)] = change->logit;
  }
}

absl::StatusOr<int32_t> Sampler::Choose(std::span<const float> logits, uint64_t position,
                                        SamplerScratch& scratch) const {
  Candidates candidates(scratch.candidates());
  const bool greedy = params_.temperature == 0;
  const size_t top = greedy ? 1 : static_cast<size_t>(params_.top_k);
  const bool usable = top > 0 && top < logits.size() ? candidates.TakeTop(logits, top) : candidates.TakeAll(logits);
  if (!usable) {
    return Error(Reason::kInternal,
                 fmt::format("logits of position {}: not numbers, or nothing can be chosen", position));
  }
  if (greedy) {
    candidates.TopK(1);
    return candidates.items()[0].id;
  }
  candidates.TopP(params_.top_p);
  candidates.MinP(params_.min_p);
  candidates.Scale(params_.temperature);
  return candidates.Pick(Draw({.seed = params_.seed, .position = position, .choice = choice_, .stream = 0}));
}

absl::StatusOr<SampledToken> Sampler::Sample(std::span<float> logits, uint64_t position, SamplerScratch& scratch) {
  if (logits.empty() || logits.size() > scratch.candidates().size()) {
    return Error(Reason::kInternal,
                 fmt::format("sampler: a row of {} logits, room for {}", logits.size(), scratch.candidates().size()));
  }
  Change(logits);
  const absl::StatusOr<int32_t> id = Choose(logits, position, scratch);
  Restore(logits);
  if (!id.ok()) return id.status();
  SampledToken token{.id = *id, .logprob = 0};
  if (params_.logprobs) {
    const double scale = params_.temperature > 0 ? 1 / double{params_.temperature} : 1;
    token.logprob = static_cast<float>(logits[static_cast<size_t>(*id)] * scale - LogSum(logits, scale));
  }
  return token;
}

}  // namespace bulkhead::engine
