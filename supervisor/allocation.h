// One allocation: a worker process from its launch to its reaping, driven by the lifecycle table. It owns the process,
// the control socket, the watchdog and the ladder of the teardown; what its frames mean for requests, and what its end
// means for the ledger, is the host's business. Loop thread only; the host is called from the loop, except where a
// method says so, and must outlive it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "bulkhead/v1/types.pb.h"
#include "ipc/frame_socket.h"
#include "supervisor/death.h"
#include "supervisor/file_identity.h"
#include "supervisor/lifecycle.h"
#include "supervisor/loop.h"
#include "supervisor/memory_probe.h"
#include "supervisor/settings.h"
#include "supervisor/stream_sink.h"
#include "supervisor/worker_process.h"

namespace bulkhead::v1 {
class DaemonFrame;
class Heartbeat;
class LoadFailed;
class SequenceStep;
class WorkerFrame;
class WorkerReady;
class WorkerStarted;
class WorkerTokenized;
}  // namespace bulkhead::v1

namespace bulkhead::supervisor {

class Allocation final : private ipc::FrameSocket::Listener {
 public:
  struct Plan {
    admission::AllocationId number = 0;
    std::string id;  // "<model>#<boot>.<n>"
    std::string model;
    bool passed = false;
    uid_t uid = 0;  // of a passed descriptor
    std::shared_ptr<const UniqueFd> file;
    FileIdentity identity;
    admission::Shape shape;
    uint32_t threads = 1;
    uint64_t weight_bytes = 0;
    uint64_t data_soft_bytes = 0;
    uint64_t data_hard_bytes = 0;
  };

  struct Surroundings {
    Loop* loop;
    ipc::SocketLoop* sockets;
    ProcessLauncher* launcher;
    MemoryProbe* memory;
    const SupervisionSettings* settings;
  };

  class Host {
   public:
    virtual ~Host() = default;
    // Every step of the table, rejected and ignored ones too, after `state()` has changed. May be called inside the
    // public methods below.
    virtual void OnStep(Allocation& allocation, AllocationEvent event, AllocationStep step) = 0;
    virtual void OnLoading(Allocation& allocation, const LoadingEvent& progress) = 0;
    virtual void OnReady(Allocation& allocation) = 0;
    virtual void OnMeasured(Allocation& allocation, uint64_t private_bytes) = 0;
    // An error is a protocol violation by the worker.
    virtual absl::Status OnStarted(Allocation& allocation, const v1::WorkerStarted& started) = 0;
    virtual absl::Status OnSequence(Allocation& allocation, const v1::SequenceStep& step) = 0;
    virtual absl::Status OnTokenized(Allocation& allocation, const v1::WorkerTokenized& tokenized) = 0;
    // The process was reaped and everything it said was delivered. The host settles and retires; it may destroy the
    // allocation, but only later on the loop.
    virtual void OnReaped(Allocation& allocation) = 0;
  };

  // How a teardown begins.
  enum class Patience : uint8_t {
    kNone,      // SIGKILL at once
    kTerm,      // SIGTERM, then SIGKILL after the grace
    kByItself,  // the worker said it is about to exit; SIGKILL after the grace
  };

  Allocation(Plan plan, const Surroundings& surroundings, Host& host);
  ~Allocation() override;

  // Starts the process. kSpawnFailed: it never existed. Calls OnStep.
  absl::Status Launch();
  // Ends it. The first cause stays; later calls can only hasten. Calls OnStep.
  void Stop(StopCause cause, Patience patience, std::string detail = {});
  // Moves the lifecycle for events that only the host knows of: kWork, kRest, kDrain, kSettled, kRetired, kGivenUp.
  void Tell(AllocationEvent event) { Fire(event); }
  // Frames for the worker; dropped where it cannot take them any more (its end is on the way then).
  void Send(const v1::DaemonFrame& frame);
  // Whether the engine has something to do, and so has to move.
  void SetExpectProgress(bool expected);

  [[nodiscard]] const Plan& plan() const { return plan_; }
  [[nodiscard]] AllocationState state() const { return state_; }
  [[nodiscard]] pid_t pid() const { return process_.running() ? process_.pid() : 0; }
  [[nodiscard]] WorkerPhase phase() const { return watchdog_.phase(); }
  // Phase in which the end began.
  [[nodiscard]] WorkerPhase death_phase() const { return death_phase_; }
  [[nodiscard]] Duration last_progress() const { return watchdog_.last_move(); }
  [[nodiscard]] StopCause cause() const { return cause_; }
  [[nodiscard]] const v1::EngineSnapshot& engine() const { return engine_; }
  // When that came; nothing before the first.
  [[nodiscard]] std::optional<Duration> heartbeat_at() const { return heartbeat_at_; }
  [[nodiscard]] uint32_t context() const { return context_; }
  [[nodiscard]] uint32_t sequences() const { return sequences_; }
  [[nodiscard]] uint32_t threads() const { return plan_.threads; }
  void set_threads(uint32_t threads) { plan_.threads = threads; }
  [[nodiscard]] Duration launched_at() const { return launched_at_; }  // monotonic
  // Next deadline of a teardown under way, monotonic; zero = none.
  [[nodiscard]] Duration teardown_deadline() const;
  [[nodiscard]] const std::optional<v1::LoadFailed>& load_failed() const;

  // Reads what it uses now and tells the host; no more than some ten microseconds.
  void Measure();
  // Last reading, bytes; 0 before the first.
  [[nodiscard]] uint64_t private_bytes() const { return private_bytes_; }
  [[nodiscard]] uint64_t file_bytes() const { return file_bytes_; }
  // For what takes longer, on a pool thread; null before its hello.
  [[nodiscard]] std::shared_ptr<ProcessMemory> memory() const { return memory_; }
  // Where its threads may run, from the next moment on.
  absl::Status SetCpus(std::span<const int> cpus) { return process_.SetCpus(cpus); }
  // What the worker said of itself when it became ready: kernel tier first, then demotions, huge pages, sandbox.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

  // After OnReaped.
  [[nodiscard]] DeathEvidence Evidence() const;
  [[nodiscard]] const std::string& stderr_tail() { return process_.errors().bytes(); }

 private:
  void OnFrame(std::string_view bytes, UniqueFd descriptor) override;
  void OnClosed(const absl::Status& why) override;

  AllocationAction Fire(AllocationEvent event);
  void BeginTeardown(Patience patience);
  void KillNow();
  void OnUnconfirmed();
  void Fault(StopCause cause, std::string detail);
  void OnProcessEnded();

  absl::Status Handle(const v1::WorkerFrame& frame);
  absl::Status OnHello(const v1::WorkerFrame& frame);
  absl::Status OnProgress(const v1::WorkerFrame& frame);
  absl::Status OnWorkerReady(const v1::WorkerReady& ready);
  absl::Status OnSteps(const v1::WorkerFrame& frame);
  absl::Status OnHeartbeat(const v1::Heartbeat& heartbeat);
  absl::Status OnLoadFailed(const v1::LoadFailed& failed);
  void CountOutOfMemoryKills();

  void EnterPhase(WorkerPhase phase);
  void ArmWatchdog();
  void OnWatchdog();
  void Stalled();

  Plan plan_;
  Surroundings around_;
  Host* host_;
  AllocationState state_ = AllocationState::kReserved;
  WorkerProcess process_;
  std::unique_ptr<ipc::FrameSocket> socket_;
  std::shared_ptr<ProcessMemory> memory_;
  Watchdog watchdog_;
  Timer watchdog_timer_;
  Timer teardown_timer_;  // SIGTERM's grace, then the confirmation
  Timer silence_timer_;   // from a lost socket until the process should have ended
  StopCause cause_ = StopCause::kNone;
  std::string cause_detail_;
  WorkerPhase death_phase_ = WorkerPhase::kSpawning;
  bool signalled_ = false;
  bool killed_ = false;
  bool expect_progress_ = false;
  std::string socket_error_;
  std::optional<ProcessExit> exit_;
  uint64_t oom_kills_ = 0;  // of the machine, as of the last reading but one
  uint64_t oom_kills_next_ = 0;
  bool oom_kills_rose_ = false;
  bool file_changed_ = false;
  std::unique_ptr<std::optional<v1::LoadFailed>> load_failed_;
  v1::EngineSnapshot engine_;
  std::optional<Duration> heartbeat_at_;
  uint32_t context_ = 0;
  uint32_t sequences_ = 0;
  Duration launched_at_{};
  Duration oom_counted_at_{};
  uint64_t private_bytes_ = 0;
  uint64_t file_bytes_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace bulkhead::supervisor
