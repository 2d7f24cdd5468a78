// LocalGenerationOffload by worker processes: admission, processes, deaths and requests, on one libuv loop.
//
// Life of an object: Create, use, Shutdown, run the loop until its `done`, destroy, run the loop once more so that
// libuv's close callbacks happen. What Options points to must outlive it.
#pragma once

#include <uv.h>

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "supervisor/memory_probe.h"
#include "supervisor/offload.h"
#include "supervisor/process_launcher.h"
#include "supervisor/settings.h"

namespace bulkhead::supervisor {

class Supervisor;

class WorkerOffload final : public LocalGenerationOffload {
 public:
  struct Options {
    uv_loop_t* loop = nullptr;
    const Clock* clock = nullptr;  // null: SystemClock()
    ProcessLauncher* launcher = nullptr;
    MemoryProbe* memory = nullptr;
    std::string state_directory;  // death records and learned peaks; empty: kept in memory only
    SupervisionSettings settings;
    std::function<ResourcePolicy()> policy;  // asked at start and by RefreshResourcePolicy; null: the default
    std::function<void(const LifecycleEvent&)> observer;  // called later on the loop, in order
    std::function<void(std::string)> warn;                // for people: degraded states, set-aside files
  };

  // kInternal where libuv refuses a handle. Trouble with the state directory is a warning.
  static absl::StatusOr<std::unique_ptr<WorkerOffload>> Create(Options options);
  ~WorkerOffload() override;

  void SetSettings(const SupervisionSettings& settings);
  // What does not work as designed, for people; empty if all does.
  [[nodiscard]] std::string Degraded() const;
  // The CPUs, who may use which, and what each worker said of itself: for `doctor`.
  [[nodiscard]] ResourceReport Resources() const;
  // Runs deadlines that `clock` says are due; only needed by tests that move a FakeClock by hand.
  void RunDueTimers();

  void AcquireAdmission(OffloadRequest request, std::unique_ptr<StreamSink> sink, Admitted admitted) override;
  void GenerateAdmitted(OffloadRequest request, LocalWorkerAdmission ticket, GenerateDone done) override;
  void StreamAdmitted(OffloadRequest request, LocalWorkerAdmission ticket, std::unique_ptr<StreamSink> sink) override;
  bool Cancel(std::string_view inference_id, CancelCause cause) override;
  bool Pause(std::string_view inference_id, bool paused) override;
  void TerminateInference(std::string_view inference_id, std::function<void(InferenceTerminationAck)> done) override;
  [[nodiscard]] std::vector<uid_t> OthersInProcessOf(std::string_view inference_id) const override;
  void ReleaseModel(std::string_view model, ReleaseOptions options,
                    std::function<void(absl::StatusOr<bool>)> done) override;
  void ReleaseIdleModels(std::chrono::nanoseconds idle_for, std::function<void(ReleaseIdleResult)> done) override;
  std::string Load(LoadSpec spec, LoadProgress progress, std::function<void(absl::StatusOr<LoadResult>)> done) override;
  bool SetPinned(std::string_view model, bool pinned) override;
  void Inspect(ModelSource model, std::function<void(absl::StatusOr<v1::Manifest>)> done) override;
  void Preflight(LoadSpec spec, std::function<void(absl::StatusOr<PreflightReport>)> done) override;
  void Tokenize(TokenizeSpec spec, std::function<void(absl::StatusOr<std::vector<int32_t>>)> done) override;
  void RefreshResourcePolicy(uint64_t generation) override;
  bool Unblock(std::string_view model) override;
  void MeasureMaps(std::function<void()> done) override;
  [[nodiscard]] std::vector<ResidentModel> ResidentModels() const override;
  [[nodiscard]] std::optional<std::string> ResidentAllocationId(std::string_view model) const override;
  [[nodiscard]] std::vector<RequestInfo> Requests() const override;
  [[nodiscard]] std::optional<RequestInfo> FindRequest(std::string_view inference_id) const override;
  [[nodiscard]] BudgetSnapshot Budget() const override;
  [[nodiscard]] std::vector<v1::Death> Deaths() const override;
  [[nodiscard]] bool Blocked(std::string_view model) const override;
  void Shutdown(std::chrono::milliseconds drain, std::function<void()> done) override;

 private:
  explicit WorkerOffload(std::unique_ptr<Supervisor> supervisor);

  std::unique_ptr<Supervisor> supervisor_;
};

}  // namespace bulkhead::supervisor
