// One request under way: its tokens, how far they are computed, its sampler and text. Owned by the engine's loop and
// used on its thread.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "engine/runtime/generation.h"
#include "engine/runtime/loaded_model.h"
#include "engine/runtime/prefix_cache.h"
#include "engine/sampling/sampler.h"
#include "engine/sampling/text_stream.h"

namespace bulkhead::engine {

// The request's sampling on top of the file's defaults; kInvalidRequest names the field.
absl::StatusOr<SamplingParams> ResolveSampling(const GenerationRequest& request, const SamplingParams& defaults);

class Sequence {
 public:
  // `params` come from ResolveSampling; `context` > prompt + resumed, as Submit checked.
  Sequence(GenerationRequest request, const SamplingParams& params, const LoadedModel& model, uint32_t context,
           Duration submitted);

  [[nodiscard]] uint64_t id() const { return request_.id; }
  [[nodiscard]] Priority priority() const { return request_.priority; }
  [[nodiscard]] Duration submitted() const { return submitted_; }
  [[nodiscard]] uint32_t prompt_tokens() const { return prompt_tokens_; }

  // Positions it may need: the last token is never computed.
  [[nodiscard]] uint32_t positions() const { return token_limit_ - 1; }

  // Tokens known (prompt, resumed, produced) and how many of them are computed.
  [[nodiscard]] std::span<const int32_t> tokens() const { return tokens_; }
  [[nodiscard]] uint32_t computed() const { return computed_; }
  [[nodiscard]] uint32_t pending() const { return static_cast<uint32_t>(tokens_.size()) - computed_; }
  // True until the first token of this engine's own was chosen, and while what was computed is computed again.
  [[nodiscard]] bool prefilling() const { return tokens_.size() == start_tokens_ || pending() > 1; }
  [[nodiscard]] const PrefixSalt& salt() const { return salt_; }

  // What the resumed ids alone decide: they may already be complete. Fills a terminal where they are.
  void CheckResumed(SequenceOutput& output, Duration now);
  // `rows` more tokens are computed.
  void Commit(uint32_t rows) { computed_ += rows; }
  // The first `computed` tokens came out of the prefix cache.
  void Adopt(uint32_t computed);
  // Its pages are gone: everything known is computed again, which changes no token.
  void Rewind();
  void MarkServed(Duration now);
  // Everything known is computed: chooses the next token from `logits`, and fills `output`, terminal or not.
  void Choose(std::span<float> logits, SamplerScratch& scratch, SequenceOutput& output, Duration now);
  // Ends it from outside: `finish`, or `error` where that is not OK.
  void End(FinishReason finish, absl::Status error, SequenceOutput& output, Duration now);

  // The loop's own notes.
  std::optional<uint32_t> slot;
  bool paused = false;
  uint64_t last_served_step = 0;
  uint64_t arrival = 0;            // in the waiting queue
  bool announced = false;          // OnStarted was called
  bool guaranteed = false;         // holds or waits for all pages it may ever need
  std::set<uint32_t> checkpoints;  // recurrent models: positions whose state is worth keeping

 private:
  [[nodiscard]] uint32_t produced() const { return static_cast<uint32_t>(tokens_.size()) - prompt_tokens_; }
  [[nodiscard]] std::vector<int32_t> Banned(const LoadedModel& model) const;
  void Finish(FinishReason finish, SequenceOutput& output, Duration now);
  void FillUsage(GenerationUsage& usage, Duration now) const;

  GenerationRequest request_;
  const Tokenizer& tokenizer_;
  uint32_t prompt_tokens_;
  uint32_t token_limit_;   // tokens in all, prompt included
  uint32_t start_tokens_;  // prompt and resumed
  PrefixSalt salt_;
  Duration submitted_;
  Duration first_served_{};
  Duration first_token_{};
  std::vector<int32_t> tokens_;
  uint32_t computed_ = 0;
  uint32_t cached_tokens_ = 0;
  bool rewound_ = false;
  Sampler sampler_;
  TextStream text_;
  std::optional<size_t> resumed_stop_;  // the stop string that the resumed ids complete
};

}  // namespace bulkhead::engine
