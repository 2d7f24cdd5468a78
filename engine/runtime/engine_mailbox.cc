// ContinuousBatchEngine::Loop, the part that other threads call.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/runtime/engine_loop.h"

namespace bulkhead::engine {

absl::Status ContinuousBatchEngine::Loop::Check(const GenerationRequest& request) const {
  if (request.prompt_ids.empty()) return Error(Reason::kInvalidRequest, "the prompt holds no token");
  const uint64_t tokens = request.prompt_ids.size() + request.resume_ids.size();
  if (request.prompt_ids.size() >= context() || tokens > context()) {
    return Error(Reason::kContextTooLarge, fmt::format("{} prompt tokens leave no room in a context of {}",
                                                       request.prompt_ids.size(), context()));
  }
  const auto vocabulary = static_cast<int64_t>(options_.model->model().config().vocabulary);
  for (const auto* ids : {&request.prompt_ids, &request.resume_ids}) {
    const auto bad =
        std::find_if(ids->begin(), ids->end(), [vocabulary](int32_t id) { return id < 0 || id >= vocabulary; });
    if (bad != ids->end()) {
      return Error(Reason::kInvalidRequest, fmt::format("token {} is outside the vocabulary of {}", *bad, vocabulary));
    }
  }
  return absl::OkStatus();
}

absl::Status ContinuousBatchEngine::Loop::Submit(GenerationRequest request) {
  RETURN_IF_ERROR(Check(request));
  ASSIGN_OR_RETURN(const SamplingParams params, ResolveSampling(request, options_.model->sampling_defaults()));
  const uint64_t id = request.id;
  auto sequence =
      std::make_unique<Sequence>(std::move(request), params, *options_.model, context(), options_.clock->Monotonic());
  std::lock_guard lock(mutex_);
  if (draining_) return Error(Reason::kShuttingDown, "the engine is shutting down");
  if (live_.contains(id)) {
    return Error(Reason::kInvalidRequest, fmt::format("request {} is already under way", id));
  }
  if (published_.waiting + unseen_ >= options_.max_waiting) {
    return Error(Reason::kQueueFull,
                 fmt::format("{} requests wait, at most {}", published_.waiting + unseen_, options_.max_waiting));
  }
  live_.insert(id);
  ++unseen_;
  if (!oldest_waiting_) oldest_waiting_ = sequence->submitted();
  mailbox_.emplace_back(std::move(sequence));
  WakeLoop();
  return absl::OkStatus();
}

void ContinuousBatchEngine::Loop::Push(Command command) {
  std::lock_guard lock(mutex_);
  mailbox_.push_back(std::move(command));
  WakeLoop();
}

// From here on it has something to do, and its silence counts.
void ContinuousBatchEngine::Loop::WakeLoop() {
  if (asleep_) Beat();
  asleep_ = false;
  wake_.notify_one();
}

void ContinuousBatchEngine::Loop::Beat() {
  beat_.store(options_.clock->Monotonic().count(), std::memory_order_relaxed);
}

EngineHealth ContinuousBatchEngine::Loop::HealthLocked() const {
  EngineHealth health;
  const Duration beat(beat_.load(std::memory_order_relaxed));
  if (!asleep_) health.heartbeat_age = std::max(options_.clock->Monotonic() - beat, Duration(0));
  health.last_error = last_error_;
  health.healthy = running_ && balanced_ && health.heartbeat_age < kStuckAfter;
  return health;
}

EngineHealth ContinuousBatchEngine::Loop::Health() const {
  std::lock_guard lock(mutex_);
  return HealthLocked();
}

void ContinuousBatchEngine::Loop::Cancel(uint64_t id) { Push(CancelCommand{id}); }

void ContinuousBatchEngine::Loop::SetPaused(uint64_t id, bool paused) { Push(PauseCommand{id, paused}); }

void ContinuousBatchEngine::Loop::SetThreads(uint32_t threads) { Push(ThreadsCommand{threads}); }

void ContinuousBatchEngine::Loop::Post(std::function<void()> closure) { Push(std::move(closure)); }

void ContinuousBatchEngine::Loop::Shutdown(Duration deadline) {
  std::unique_lock lock(mutex_);
  const Duration until = options_.clock->Monotonic() + deadline;
  drain_deadline_ = draining_ ? std::min(drain_deadline_, until) : until;
  draining_ = true;
  wake_.notify_one();
  changed_.wait(lock, [this] { return live_.empty() || !running_; });
}

EngineSnapshot ContinuousBatchEngine::Loop::Snapshot() const {
  std::lock_guard lock(mutex_);
  EngineSnapshot snapshot = published_;
  snapshot.waiting += unseen_;
  const EngineHealth health = HealthLocked();
  snapshot.healthy = health.healthy;
  snapshot.heartbeat_age_ns = static_cast<uint64_t>(health.heartbeat_age.count());
  if (oldest_waiting_) {
    snapshot.oldest_waiting_ns =
        static_cast<uint64_t>(std::max(options_.clock->Monotonic() - *oldest_waiting_, Duration(0)).count());
  }
  return snapshot;
}

ContinuousBatchEngine::Loop::~Loop() {
  Shutdown(Duration(0));
  std::unique_lock lock(mutex_);
  quit_ = true;
  wake_.notify_one();
  changed_.wait(lock, [this] { return !running_; });
}

void ContinuousBatchEngine::Loop::Start() {
  EngineThread* thread = options_.thread;
  if (thread == nullptr) {
    own_thread_ = std::make_unique<EngineThread>();
    thread = own_thread_.get();
  }
  running_ = true;
  thread->Post([this] { Run(); });
}

}  // namespace bulkhead::engine
