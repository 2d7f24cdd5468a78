// The state behind WorkerOffload: requests, allocations, models' breakers, and the coordinator they are driven by.
// Split by concern over supervisor_*.cc. Loop thread only; whatever leaves (sinks, callbacks, the observer) goes
// through Loop::Post, so nothing here is ever re-entered.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "admission/coordinator.h"
#include "ipc/frame_socket.h"
#include "supervisor/allocation.h"
#include "supervisor/breaker.h"
#include "supervisor/death_log.h"
#include "supervisor/inference.h"
#include "supervisor/inspector.h"
#include "supervisor/loop.h"
#include "supervisor/machine_cpus.h"
#include "supervisor/recent_ids.h"
#include "supervisor/state_file.h"
#include "supervisor/worker_offload.h"

namespace bulkhead::supervisor {

class Supervisor final : private Allocation::Host {
 public:
  explicit Supervisor(WorkerOffload::Options options);
  ~Supervisor() override;

  // --- Requests: supervisor_requests.cc, supervisor_streams.cc.
  void Accept(std::unique_ptr<Inference> inference);
  void Run(OffloadRequest request, LocalWorkerAdmission ticket, std::shared_ptr<StreamSink> sink);
  bool Cancel(std::string_view id, EndCause cause);
  bool Pause(std::string_view id, bool paused);
  [[nodiscard]] std::unique_ptr<Inference> NewInference(RequestKind kind);

  // --- Ends of processes: supervisor_release.cc.
  void Terminate(std::string_view id, std::function<void(InferenceTerminationAck)> done);
  void Release(std::string_view model, const ReleaseOptions& options, std::function<void(absl::StatusOr<bool>)> done);
  void ReleaseIdle(Duration idle_for, std::function<void(ReleaseIdleResult)> done);
  void Shutdown(Duration drain, std::function<void()> done);

  // --- Models: supervisor_models.cc.
  void Inspect(const ModelSource& model, std::function<void(absl::StatusOr<v1::Manifest>)> done);
  void Preflight(const LoadSpec& spec, std::function<void(absl::StatusOr<PreflightReport>)> done);
  bool SetPinned(std::string_view model, bool pinned);
  bool Unblock(std::string_view model);
  [[nodiscard]] bool Blocked(std::string_view model) const;
  void RefreshPolicy(uint64_t generation);
  void SetSettings(const SupervisionSettings& settings);

  // --- What is: supervisor_snapshots.cc.
  [[nodiscard]] std::vector<ResidentModel> Residents() const;
  [[nodiscard]] std::optional<std::string> ResidentAllocationId(std::string_view model) const;
  [[nodiscard]] std::vector<RequestInfo> Requests() const;
  [[nodiscard]] std::optional<RequestInfo> FindRequest(std::string_view id) const;
  [[nodiscard]] std::vector<uid_t> OthersInProcessOf(std::string_view id) const;
  [[nodiscard]] BudgetSnapshot Budget() const;
  [[nodiscard]] std::vector<v1::Death> Deaths() const { return deaths_.All(); }
  [[nodiscard]] std::string Degraded() const;
  // supervisor_resources.cc.
  [[nodiscard]] ResourceReport Resources() const;
  void MeasureMaps(std::function<void()> done);

  [[nodiscard]] Loop& loop() { return loop_; }

 private:
  class WorkerLease;
  // Who waits for the end of one allocation. `unconfirmed` is called at most once, before `ended` or never.
  struct EndWaiter {
    std::function<void(const DeathVerdict&)> ended;
    std::function<void()> unconfirmed;
  };
  struct Held {
    std::unique_ptr<Allocation> process;
    std::vector<EndWaiter> waiters;
    std::unique_ptr<Timer> drain_timer;
    std::unique_ptr<Timer> healthy_timer;
    AllocationState announced = AllocationState::kReserved;
    bool draining = false;
    std::vector<int> cpus;                  // where its threads were told to run; empty: wherever the daemon may
    std::optional<MapReading> maps;         // as of the last MeasureMaps
    std::vector<std::string> evidence_for;  // inferences whose termination it is to confirm
  };
  struct Model {
    Breaker breaker;
    std::unique_ptr<Timer> reopening;
  };

  // The coordinator with its clock set; every input goes through here.
  admission::AdmissionCoordinator& Coordinator();
  void ScheduleActions();
  void ProcessActions();
  void ArmCoordinatorTimer();
  void SampleMemory();
  void ArmSampling();
  void MeasureAll();
  admission::Policy MakePolicy() const;
  void OnSpawn(const admission::SpawnAction& action);
  void OnBound(const admission::BoundAction& action);
  void OnGrant(const admission::GrantAction& action);
  void OnQueued(const admission::QueuedAction& action);
  void OnRefuse(const admission::RefuseAction& action);
  void OnEvict(const admission::EvictAction& action);
  uint64_t DataLimit(const admission::Charge& estimate) const;

  // Allocation::Host.
  void OnStep(Allocation& allocation, AllocationEvent event, AllocationStep step) override;
  void OnLoading(Allocation& allocation, const LoadingEvent& progress) override;
  void OnReady(Allocation& allocation) override;
  void OnMeasured(Allocation& allocation, uint64_t private_bytes) override;
  absl::Status OnStarted(Allocation& allocation, const v1::WorkerStarted& started) override;
  absl::Status OnSequence(Allocation& allocation, const v1::SequenceStep& step) override;
  absl::Status OnTokenized(Allocation& allocation, const v1::WorkerTokenized& tokenized) override;
  void OnReaped(Allocation& allocation) override;

  // Deaths: supervisor_deaths.cc.
  DeathVerdict Judge(Allocation& allocation) const;
  bool LearnFromOutOfMemory(Allocation& allocation, const DeathVerdict& verdict);
  void AnswerWaiters(Held& held, const DeathVerdict& verdict);
  void CountDeath(Allocation& allocation, const DeathVerdict& verdict);
  uint64_t RecordDeath(Allocation& allocation, const DeathVerdict& verdict, uint32_t in_flight);
  void EndRequests(const std::vector<std::string>& ids, const OffloadError& error, bool try_again);
  // Replay: supervisor_replay.cc.
  void ReplayOrEnd(const std::vector<std::string>& ids, const Held& held, const DeathVerdict& verdict,
                   const OffloadError& error, bool try_again);
  void Replay(Inference& inference, Reason why);
  void AskAgain(Inference& inference);
  bool WaitsForBreaker(Inference& inference, Reason reason, Duration retry_after);
  [[nodiscard]] bool MustHoldBack(const Inference& inference) const;
  void SendHeldBack(const std::string& model);
  void EndWaitersOf(const std::string& model, const OffloadError& error);
  void OpenBreaker(const std::string& name, Model& model);

  // Requests.
  void Identify(Inference& inference);
  void AskAdmission(Inference& inference);
  void OnLoaded(Inference& inference, Held& held);
  void Send(Inference& inference);
  void Escalate(Inference& inference);
  void OnDeadline(Inference& inference);
  void BeginCancel(Inference& inference, EndCause cause);
  void LeaseDropped(const std::string& id, admission::AllocationId number);
  void ReportProgress(Allocation& allocation, const LoadingEvent& progress);

  // Terminals. The inference is gone afterwards.
  void EndDone(Inference& inference, DoneEvent done);
  void EndError(Inference& inference, OffloadError error);
  void EndCancelled(Inference& inference);
  void Forget(Inference& inference);

  [[nodiscard]] Inference* Find(std::string_view id) const;
  [[nodiscard]] Inference* ByTicket(admission::TicketId ticket) const;
  [[nodiscard]] Inference* ByHandle(uint64_t handle) const;
  [[nodiscard]] Held* FindHeld(admission::AllocationId number);
  [[nodiscard]] std::vector<Inference*> OnAllocation(admission::AllocationId number) const;
  void UpdateProgress(Held& held);
  void Rebalance();
  void Place(Held& held, const std::vector<int>& cpus);
  [[nodiscard]] std::string GrantOf(const Held& held, size_t busy) const;
  void SyncBusy(Held& held);
  void BeginDrain(Held& held, Duration drain);
  void OnDrainDeadline(admission::AllocationId number);
  void ArmIdleSweep();
  void AfterUse(admission::AllocationId number);
  void CheckShutdown();
  void GiveUpShutdown();
  void Emit(const std::string& subject, std::string_view what, const std::string& model, std::string detail = {});
  void EmitState(const Inference& inference, std::string detail = {});
  void Warn(std::string text);
  [[nodiscard]] uint64_t NextBoot();
  void LoadPeaks();
  void SavePeaks();

  WorkerOffload::Options options_;
  SupervisionSettings settings_;
  Loop loop_;
  ipc::SocketLoop sockets_;
  std::shared_ptr<admission::AdmissionCoordinator> coordinator_;
  std::shared_ptr<Supervisor*> self_;  // what a lease out in the world may still see of us
  Allocation::Surroundings around_;
  StateFile boot_file_;
  StateFile peaks_file_;
  DeathLog deaths_;
  Inspector inspector_;
  uint64_t boot_ = 0;
  uint64_t policy_generation_ = 1;
  bool actions_scheduled_ = false;
  Timer coordinator_timer_;
  Timer sample_timer_;
  Timer idle_timer_;
  MachineCpus cpus_;
  std::string cpu_problem_;  // of the last placement that failed
  uint64_t ram_bytes_ = 0;

  std::map<std::string, Model, std::less<>> models_;
  std::map<admission::AllocationId, Held> allocations_;
  std::map<std::string, std::unique_ptr<Inference>, std::less<>> inferences_;
  std::unordered_map<admission::TicketId, Inference*> by_ticket_;
  std::unordered_map<uint64_t, Inference*> by_handle_;
  uint64_t next_handle_ = 0;
  uint32_t held_back_ = 0;  // requests that wait for the end of another's quarantine
  RecentIds ended_;         // inferences that had their terminal
  std::map<std::string, InferenceTerminationAck, std::less<>> terminations_;  // evidence, once taken kept

  bool stopping_ = false;
  bool stopped_ = false;
  std::function<void()> stopped_done_;
  Timer shutdown_timer_;
};

}  // namespace bulkhead::supervisor
