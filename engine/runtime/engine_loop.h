// The engine's thread: ContinuousBatchEngine's calls arrive in a mailbox, steps run until nothing is left to do, then
// the thread sleeps. Everything below "engine thread" is touched by that thread alone.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_set>
#include <variant>
#include <vector>

#include "engine/runtime/continuous_batch_engine.h"
#include "engine/runtime/engine_thread.h"
#include "engine/runtime/loaded_model.h"
#include "engine/runtime/plan_runtime.h"
#include "engine/runtime/prefill_pacer.h"
#include "engine/runtime/sequence.h"
#include "engine/runtime/waiting_queue.h"
#include "kernels/compute.h"

namespace bulkhead::engine {

class ContinuousBatchEngine::Loop {
 public:
  Loop(Options options, const kernels::KernelTable& kernels, std::unique_ptr<PlanRuntime> runtime);
  ~Loop();

  // Any thread.
  void Start();
  absl::Status Submit(GenerationRequest request);
  void Cancel(uint64_t id);
  void SetPaused(uint64_t id, bool paused);
  void SetThreads(uint32_t threads);
  void Post(std::function<void()> closure);
  void Shutdown(Duration deadline);
  [[nodiscard]] EngineSnapshot Snapshot() const;
  [[nodiscard]] EngineHealth Health() const;
  [[nodiscard]] uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }
  [[nodiscard]] EnginePhase phase() const { return phase_.load(std::memory_order_relaxed); }
  [[nodiscard]] uint32_t context() const { return options_.shape.context; }
  [[nodiscard]] uint64_t private_bytes() const { return private_bytes_; }
  [[nodiscard]] const std::string& kernel_tier() const { return kernel_tier_; }

 private:
  struct CancelCommand {
    uint64_t id;
  };
  struct PauseCommand {
    uint64_t id;
    bool paused;
  };
  struct ThreadsCommand {
    uint32_t threads;
  };
  using Command =
      std::variant<std::unique_ptr<Sequence>, CancelCommand, PauseCommand, ThreadsCommand, std::function<void()>>;

  // One sequence's share of a step.
  struct Share {
    Sequence* sequence;
    uint32_t rows;
  };

  absl::Status Check(const GenerationRequest& request) const;
  void Push(Command command);
  void WakeLoop();
  [[nodiscard]] EngineHealth HealthLocked() const;

  // Engine thread.
  void Run();
  // Sleeps until there may be something to do; false once the engine shall end.
  bool AwaitWork();
  void TakeCommands();
  void Handle(Command& command);
  void Accept(std::unique_ptr<Sequence> sequence);
  void CancelNow(uint64_t id);
  void CancelAllIfOverdue();
  void AdmitWaiting();
  Admission AdmitOne(const Waiter& waiter);
  [[nodiscard]] bool HasRunnable() const;
  void Step();
  [[nodiscard]] std::vector<Share> Plan();
  [[nodiscard]] std::vector<Sequence*> RunnableByLastServed(bool prefilling) const;
  void AddPrefill(std::vector<Share>& plan, uint32_t budget);
  void AdoptMore(Sequence& sequence);
  // Another one is computing the page that this one needs next.
  [[nodiscard]] bool Follows(const Sequence& sequence);
  void WishForCheckpoints(Sequence& sequence) const;
  void SecurePages(std::vector<Share>& plan);
  Sequence& LeastImportant();
  void Preempt(Sequence& sequence);
  void Beat();
  absl::Status Forward(const std::vector<Share>& plan);
  absl::Status AddRows(const Share& share);
  void Commit(const std::vector<Share>& plan);
  // Asked between layers: is somebody in this forward cancelled?
  [[nodiscard]] bool ShouldGiveUp();
  void EndSequence(Sequence& sequence, FinishReason finish, const absl::Status& error);
  void Emit(SequenceOutput output);
  void Deliver();
  void PublishSnapshot();

  const Options options_;
  const std::string kernel_tier_;
  const uint64_t private_bytes_;
  std::atomic<uint64_t> progress_{0};
  std::atomic<EnginePhase> phase_{EnginePhase::kIdle};
  std::atomic<Duration::rep> beat_;  // when the loop last moved

  mutable std::mutex mutex_;  // guards what follows, up to "engine thread"
  std::condition_variable wake_;
  std::condition_variable changed_;
  std::deque<Command> mailbox_;
  std::unordered_set<uint64_t> live_;  // accepted and not yet answered
  bool draining_ = false;
  bool quit_ = false;
  bool running_ = false;
  bool asleep_ = false;  // with nothing to do
  bool balanced_ = true;
  absl::Status last_error_;
  Duration drain_deadline_{};
  EngineSnapshot published_;
  uint32_t unseen_ = 0;                     // submitted and still in the mailbox
  std::optional<Duration> oldest_waiting_;  // when the oldest waiter came

  // Engine thread.
  std::unique_ptr<PlanRuntime> runtime_;
  kernels::Compute compute_;
  StopCheck stop_check_;
  SamplerScratch scratch_;
  PrefillPacer pacer_;
  WaitingQueue waiting_;
  std::map<uint64_t, std::unique_ptr<Sequence>> sequences_;
  std::vector<SequenceOutput> outputs_;
  std::vector<Row> rows_;
  std::unordered_set<uint64_t> batch_;  // ids in the forward under way
  bool capacity_blocked_ = false;
  bool capacity_freed_ = false;  // since waiters were last looked at
  uint64_t steps_ = 0;
  uint64_t tokens_prefilled_ = 0;
  uint64_t tokens_decoded_ = 0;
  uint64_t preemptions_ = 0;

  std::unique_ptr<EngineThread> own_thread_;  // last: joined before the rest goes
};

}  // namespace bulkhead::engine
