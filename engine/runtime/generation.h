// What goes into ContinuousBatchEngine and what comes out of it. Plain values; the worker translates them to and from
// frames one to one, so the engine knows no protocol.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace bulkhead::engine {

enum class Priority : uint8_t { kNormal = 0, kInteractive = 1, kBatch = 2 };

// Numbers equal those of bulkhead.v1.FinishReason.
enum class FinishReason : uint8_t { kUnspecified = 0, kStop = 1, kLength = 2, kStopString = 3, kCancelled = 4 };

// As bulkhead.v1.Sampling: an absent field takes the file's general.sampling.* default, else the project's.
struct SamplingOptions {
  std::optional<float> temperature;
  std::optional<int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repeat_penalty;
  std::optional<int32_t> repeat_last_n;
};

struct GenerationRequest {
  uint64_t id = 0;                  // the caller's, unique in the engine's life
  std::vector<int32_t> prompt_ids;  // at least one
  // Replay: ids produced before. They are prefilled (logits for the last row only), rebuild the detokeniser, the stop
  // matcher and the penalties, and are neither prompt nor cached in usage. The first output has index = their count.
  std::vector<int32_t> resume_ids;
  SamplingOptions sampling;
  uint64_t seed = 0;
  uint32_t choice = 0;      // stream of draws, where one prompt has several answers
  uint32_t max_tokens = 0;  // resume_ids included; 0 = to the end of the context
  std::vector<std::string> stop;
  bool ignore_eos = false;
  bool logprobs = false;
  Priority priority = Priority::kNormal;
  // Beginnings of sequences are shared between requests of one tenant (a uid) and adapter only.
  uint64_t tenant = 0;
  std::string adapter = {};
};

struct ProducedToken {
  int32_t id = 0;
  std::optional<float> logprob;  // natural logarithm under the temperature alone
};

struct GenerationUsage {
  uint32_t prompt_tokens = 0;
  uint32_t completion_tokens = 0;  // resume_ids included
  uint32_t cached_tokens = 0;      // of the prompt, taken from the prefix cache instead of computed
  uint64_t queue_ns = 0;           // Submit to the first row computed
  uint64_t prefill_ns = 0;         // first row computed to first token
  uint64_t decode_ns = 0;          // first token to terminal
  uint64_t first_token_ns = 0;     // Submit to first token
};

// What one engine step produced for one request: text and tokens, or a terminal, or both. Exactly one output of a
// request is terminal, and it is the last.
struct SequenceOutput {
  uint64_t id = 0;
  uint64_t index = 0;  // tokens of the request before these, resume_ids included
  std::string text;    // whole UTF-8 code points; stop strings held back and never part of it
  std::vector<ProducedToken> tokens;
  FinishReason finish = FinishReason::kUnspecified;  // ended well
  absl::Status error;                                // ended badly
  std::string stop_string;                           // with kStopString: the one that matched
  GenerationUsage usage;                             // with a terminal

  [[nodiscard]] bool terminal() const { return finish != FinishReason::kUnspecified || !error.ok(); }
};

// Receives everything; called on the engine thread only, between steps. It must not block for long (every sequence
// waits) and may call Submit, Cancel, Pause and Unpause. It outlives the engine.
class GenerationSink {
 public:
  virtual ~GenerationSink() = default;
  // The request holds its pages; comes before any of its outputs. `context` = tokens it may hold, prompt included.
  virtual void OnStarted(uint64_t id, uint32_t prompt_tokens, uint32_t context) = 0;
  // All outputs of one step at once; a request occurs at most once. Also called for terminals outside a step (cancels,
  // shutdown).
  virtual void OnStep(std::span<const SequenceOutput> outputs) = 0;
};

}  // namespace bulkhead::engine
