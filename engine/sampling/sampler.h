// Chooses one token from a row of logits, as SamplingParams say. Order: banned tokens out, repetition penalty, top-k,
// top-p, min-p, temperature, draw. Ties: probability descending, id ascending, everywhere; so the result is a function
// of (logits, parameters, history, draw key) alone. Arithmetic is plain IEEE double with an exp of our own: no libm,
// whose results depend on the CPU (docs/numerics.md).
//
// Memory: everything is allocated by SamplerScratch's constructor and the sampler's; Sample allocates nothing.
// Not thread-safe: a Sampler belongs to its sequence, a SamplerScratch to the thread that samples.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/sampling/candidates.h"
#include "engine/sampling/draw.h"
#include "engine/sampling/params.h"
#include "engine/sampling/repetition_penalty.h"

namespace bulkhead::engine {

// Workspace for rows of `vocabulary` logits: 8 bytes a token. One per engine thread, shared by its sequences.
class SamplerScratch {
 public:
  explicit SamplerScratch(uint32_t vocabulary) : candidates_(vocabulary) {}
  [[nodiscard]] std::span<Candidate> candidates() { return candidates_; }

 private:
  std::vector<Candidate> candidates_;
};

struct SampledToken {
  int32_t id = 0;
  // Natural logarithm of the token's probability with temperature applied (1 where temperature is 0) and no other
  // sampler. Only computed where params.logprobs asks; otherwise 0.
  float logprob = 0;
};

class Sampler {
 public:
  // `params` must have passed Validate. `banned`: ids never chosen (the end-of-generation set where ignore_eos is on).
  // `choice`: which of a request's choices this is.
  Sampler(const SamplingParams& params, std::span<const int32_t> banned, uint32_t choice = 0);

  // Tells the repetition penalty of tokens now in the sequence, oldest first: the prompt's, those resumed, and each one
  // chosen (Sample does not do so by itself).
  void Accept(std::span<const int32_t> ids) { penalty_.Accept(ids); }
  void Accept(int32_t id) { Accept({&id, 1}); }

  // The token for `position` (absolute, prompt included). `logits` are changed meanwhile and put back. A row with
  // a NaN, +inf or nothing but -inf is kInternal: that sequence ends alone.
  absl::StatusOr<SampledToken> Sample(std::span<float> logits, uint64_t position, SamplerScratch& scratch);

  [[nodiscard]] const SamplingParams& params() const { return params_; }

 private:
  // Applies penalty and bans, keeping what was there in changed_.
  void Change(std::span<float> logits);
  void Restore(std::span<float> logits) const;
  absl::StatusOr<int32_t> Choose(std::span<const float> logits, uint64_t position, SamplerScratch& scratch) const;

  SamplingParams params_;
  std::vector<int32_t> banned_;
  uint32_t choice_;
  RepetitionPenalty penalty_;
  std::vector<Candidate> changed_;
};

}  // namespace bulkhead::engine
