// Runs many generations on one model: one engine thread, one forward per step over rows of several sequences.
//
// A step: take cancels -> admit (priority, then age; a waiter bypassed 8 times becomes a barrier) -> decodes first,
// round-robin by last served -> prefill chunks with the rest of the token budget -> one forward -> sample and commit
// row by row. An error in one row ends that request alone. With nothing to do the thread sleeps.
//
// A request is admitted with the pages of what it knows. Where a running one then finds no page, the least important
// one (paused, low priority, young) gives its pages up, waits with its old arrival for all it may ever need, and is
// computed again: so each is preempted at most once, and whoever came back can finish. Beginnings that were computed
// before are taken from the prefix cache; of several prompts that begin alike, one computes what the others wait for.
//
// One request (file, prompt ids, parameters, seed) has one token sequence, whatever else runs (DESIGN section 6).
//
// Thread rule: every public method may be called from any thread and none blocks on computing, except Shutdown and
// the destructor. The sink is called on the engine thread only.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "engine/model/memory_estimate.h"
#include "engine/runtime/generation.h"
#include "engine/runtime/prefix_cache.h"

namespace bulkhead::kernels {
class ComputePool;
}

namespace bulkhead::engine {

class EngineThread;
class LoadedModel;

enum class EnginePhase : uint8_t { kIdle, kPrefill, kDecode };

// As bulkhead.v1.EngineSnapshot.
struct EngineSnapshot {
  uint32_t max_sequences = 0;
  uint32_t active_prefill = 0;
  uint32_t active_decode = 0;
  uint32_t waiting = 0;
  uint32_t paused = 0;
  uint64_t kv_pages_total = 0;
  uint64_t kv_pages_free = 0;  // holding nothing
  uint64_t kv_pages_idle = 0;  // held by the prefix cache alone: given up when needed
  uint64_t kv_pages_reserved = 0;
  bool capacity_blocked = false;  // the first waiter was deferred
  uint64_t oldest_waiting_ns = 0;
  uint64_t tokens_prefilled = 0;
  uint64_t tokens_decoded = 0;
  uint64_t steps = 0;
  uint32_t context = 0;
  uint64_t preemptions = 0;
  PrefixCacheCounts cache;
  bool healthy = true;
  uint64_t heartbeat_age_ns = 0;
};

struct EngineHealth {
  bool healthy = false;
  // Since the loop last moved (a step, a layer), while it had something to do; 0 while it sleeps.
  Duration heartbeat_age{};
  absl::Status last_error;  // of a forward, or of books that do not balance
};

class ContinuousBatchEngine {
 public:
  struct Options {
    std::shared_ptr<const LoadedModel> model;
    MemoryShape shape;                     // context, sequences, KV type
    kernels::ComputePool* pool = nullptr;  // outlives the engine; never null
    std::string kernel_tier;               // empty = best; otherwise a tier's name
    EngineThread* thread = nullptr;  // runs the loop once its current closure ends; null = the engine starts its own
    GenerationSink* sink = nullptr;  // outlives the engine; never null
    uint32_t max_waiting = 1024;     // requests beyond it are refused with kQueueFull
    Duration max_prefill_chunk = std::chrono::milliseconds(250);
    uint32_t fixed_prefill_chunk = 0;  // tests: rows per chunk instead of sizing by time
    bool prefix_cache = true;
    // Tests: every row of logits as computed, with its request and the number of tokens before the one chosen from it.
    std::function<void(uint64_t id, uint32_t position, std::span<const float> row)> observe_logits = {};
    const Clock* clock = &SystemClock();
  };

  // Maps and touches all private memory, then starts the loop. kInvalidRequest for impossible numbers, kWorkerOom (with
  // a MemoryShortage) where memory cannot be had, kCpuUnsupported for a tier this CPU lacks.
  static absl::StatusOr<std::unique_ptr<ContinuousBatchEngine>> Create(Options options);
  // Shutdown(0), then waits for the loop to end.
  ~ContinuousBatchEngine();

  // Takes the request, or says at once why not: kInvalidRequest (no prompt, an id outside the vocabulary, an id of
  // a request still under way), kContextTooLarge (no room for one token), kQueueFull, kShuttingDown. An accepted
  // request gets exactly one terminal through the sink, also at shutdown; a refused one gets nothing there.
  [[nodiscard]] absl::Status Submit(GenerationRequest request);
  // Ends the request with kCancelled; takes effect between layers. Unknown or ended: nothing.
  void Cancel(uint64_t id);
  // A paused request keeps its pages and leaves the batch.
  void Pause(uint64_t id);
  void Unpause(uint64_t id);
  // Compute threads per step from the next step on, at most the pool's.
  void SetThreads(uint32_t threads);
  // Runs `closure` on the engine thread between steps, in order of posting (tokenizing for a client, for example).
  // After shutdown it is dropped unrun.
  void Post(std::function<void()> closure);

  // Refuses new requests (kShuttingDown), lets those under way finish until `deadline` has passed, cancels the rest,
  // returns when everything is answered. Idempotent; never call it from the sink.
  void Shutdown(Duration deadline);

  [[nodiscard]] EngineSnapshot Snapshot() const;
  // Healthy from Create on: false where the loop has not moved for kStuckAfter though it has something to do, where it
  // has ended, or where its books do not balance.
  static constexpr Duration kStuckAfter = std::chrono::seconds(30);
  [[nodiscard]] EngineHealth Health() const;
  // Layers computed so far: moves whenever the engine does anything.
  [[nodiscard]] uint64_t progress() const;
  [[nodiscard]] EnginePhase phase() const;
  [[nodiscard]] uint32_t context() const;
  // Private bytes mapped, constant after Create.
  [[nodiscard]] uint64_t private_bytes() const;
  [[nodiscard]] const std::string& kernel_tier() const;

 private:
  class Loop;
  explicit ContinuousBatchEngine(std::unique_ptr<Loop> loop);

  std::unique_ptr<Loop> loop_;
};

std::string_view NameOf(EnginePhase phase);

}  // namespace bulkhead::engine
