// Where the events of one generation go. Order: OnQueued* OnLoading* OnStarted OnDelta* and then exactly one of OnDone
// and OnError, which may come at any point and after which nothing is called. All on the loop's thread, never inside
// the call that handed the sink over. OnResumed says that the worker died and the request goes on in another: OnQueued
// and OnLoading may follow it, then the next OnDelta, as if nothing had happened. The offload owns the sink and
// destroys it after the terminal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/reason.h"
#include "base/status.h"
#include "bulkhead/v1/types.pb.h"

namespace bulkhead::supervisor {

struct QueuedEvent {
  uint32_t position = 0;  // 1 = next
  std::string reason;     // an admission verdict's name
};

struct LoadingEvent {
  std::string phase;  // spawn, header, tokenizer, weights, warm
  uint64_t done = 0;
  uint64_t total = 0;
};

struct StartedEvent {
  std::string inference_id;
  std::string allocation_id;
  uint64_t seed = 0;
  uint32_t prompt_tokens = 0;
  uint32_t context = 0;
};

struct ResumedEvent {
  uint32_t attempt = 0;  // deaths so far
  Reason reason = Reason::kWorkerCrashed;
  bool exact = true;  // false: arithmetic of another version goes on from here
};

// `index` tokens came before these; text may be empty while bytes are held back.
struct DeltaEvent {
  uint64_t index = 0;
  std::string text;
  std::vector<v1::Token> tokens;
};

struct DoneEvent {
  v1::FinishReason finish_reason = v1::FINISH_REASON_UNSPECIFIED;
  v1::Usage usage;
  std::string stop_string;
};

struct OffloadError {
  Reason reason = Reason::kInternal;
  std::string message;
  bool retryable = false;
  uint64_t retry_after_ms = 0;
  uint64_t death_id = 0;  // 0 = no worker died of it
  std::string hint;       // the next command to try, may be empty
  uint64_t length = 0;    // of kQueueFull: how many wait,
  uint64_t limit = 0;     // and how many may

  // Retryable as the reason's table row says.
  static OffloadError Of(Reason reason, std::string message);
  static OffloadError Of(const absl::Status& status);
  // Beside reason and message the status carries retry_after_ms, length and limit, which Of() takes out again.
  [[nodiscard]] absl::Status ToStatus() const;
};

class StreamSink {
 public:
  virtual ~StreamSink() = default;
  virtual void OnQueued(const QueuedEvent&) {}
  virtual void OnLoading(const LoadingEvent&) {}
  virtual void OnStarted(const StartedEvent&) {}
  virtual void OnResumed(const ResumedEvent&) {}
  virtual void OnDelta(const DeltaEvent& delta) = 0;
  virtual void OnDone(const DoneEvent& done) = 0;
  virtual void OnError(const OffloadError& error) = 0;
};

}  // namespace bulkhead::supervisor
