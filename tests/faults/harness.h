// Drives a WorkerOffload in this process over real worker processes, and records what comes out of it, raw. Every wait
// has a limit.
#pragma once

#include <uv.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "supervisor/worker_offload.h"

namespace bulkhead::supervisor::test {

// All events of one request, in order, as "queued", "loading", "started", "delta 0 text", "done LENGTH", "error
// REASON".
struct Recording {
  std::vector<std::string> events;
  std::string text;
  std::vector<int32_t> ids;
  std::string allocation_id;
  uint64_t seed = 0;
  int terminals = 0;
  bool after_terminal = false;
  DoneEvent done;
  OffloadError error;

  [[nodiscard]] bool ended() const { return terminals > 0; }
  [[nodiscard]] bool failed() const { return error.reason != Reason::kUnspecified; }
  [[nodiscard]] bool Saw(std::string_view event) const;
};

class RecordingSink final : public StreamSink {
 public:
  explicit RecordingSink(std::shared_ptr<Recording> recording) : recording_(std::move(recording)) {
    recording_->error.reason = Reason::kUnspecified;
  }
  void OnQueued(const QueuedEvent& event) override { Add("queued " + event.reason); }
  void OnLoading(const LoadingEvent& event) override { Add("loading " + event.phase); }
  void OnStarted(const StartedEvent& event) override;
  void OnResumed(const ResumedEvent& event) override;
  void OnDelta(const DeltaEvent& delta) override;
  void OnDone(const DoneEvent& done) override;
  void OnError(const OffloadError& error) override;

 private:
  void Add(std::string event);
  std::shared_ptr<Recording> recording_;
};

// The real launcher, except that its signals can be made to have no effect, as on a process in uninterruptible sleep.
class DeafLauncher final : public ProcessLauncher {
 public:
  explicit DeafLauncher(std::unique_ptr<PosixLauncher> inner) : inner_(std::move(inner)) {}
  absl::StatusOr<LaunchedProcess> Launch(const LaunchSpec& spec) override { return inner_->Launch(spec); }
  int Signal(const Pidfd& process, int signal) override { return deaf ? 0 : inner_->Signal(process, signal); }
  absl::StatusOr<std::optional<ProcessExit>> Reap(const Pidfd& process) override { return inner_->Reap(process); }
  absl::Status SetCpus(const UniqueFd& threads, std::span<const int> cpus) override {
    return inner_->SetCpus(threads, cpus);
  }

  bool deaf = false;

 private:
  std::unique_ptr<PosixLauncher> inner_;
};

// The kernel's own word, except where the test says something else.
class OverriddenMemory final : public MemoryProbe {
 public:
  MachineMemory Machine() override {
    MachineMemory machine = inner_->Machine();
    if (available.has_value()) machine.available = available;
    return machine;
  }
  std::optional<uint64_t> Available() override { return available.has_value() ? available : inner_->Available(); }
  std::unique_ptr<ProcessMemory> Open(pid_t pid) override { return inner_->Open(pid); }
  uint64_t OutOfMemoryKills() override { return inner_->OutOfMemoryKills(); }

  std::optional<uint64_t> available;  // bytes

 private:
  std::unique_ptr<MemoryProbe> inner_ = MakeProcMemoryProbe();
};

// Quick deadlines, so that a test of a deadline is a short one.
SupervisionSettings QuickSettings();

class Harness {
 public:
  // `worker`: path of the worker binary. `clock` outlives the harness; null: the kernel's.
  explicit Harness(std::string worker, SupervisionSettings settings = QuickSettings(), const Clock* clock = nullptr);
  ~Harness();  // shuts down and closes the loop; fails the test if something is left

  [[nodiscard]] WorkerOffload& offload() { return *offload_; }
  [[nodiscard]] DeafLauncher& launcher() { return *launcher_; }
  ResourcePolicy policy = {1, "local_focused", 0};
  OverriddenMemory machine;
  [[nodiscard]] const std::string& directory() const { return directory_; }
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }
  // "subject what detail" of every lifecycle event.
  [[nodiscard]] const std::vector<std::string>& log() const { return log_; }
  // Position of the first event of that subject and state; npos if none.
  [[nodiscard]] size_t Logged(const std::string& subject, const std::string& what) const;

  // Runs the loop until `condition` holds; false after `limit`.
  bool RunUntil(const std::function<bool()>& condition,
                std::chrono::milliseconds limit = std::chrono::milliseconds(20000));
  // A file with this content, as a model. With a load fault the first worker of it commits that.
  ModelSource Script(const std::string& name, const std::string& load_fault = {});
  ModelSource Open(const std::string& name, const std::string& path);

  std::shared_ptr<Recording> Stream(const ModelSource& model, const std::string& prompt, std::string* id = nullptr,
                                    const std::function<void(OffloadRequest&)>& change = {});
  // ... with on_worker_death = RESUME; the others here say FAIL.
  std::shared_ptr<Recording> Resuming(const ModelSource& model, const std::string& prompt, std::string* id = nullptr);
  // Streams to the end.
  std::shared_ptr<Recording> Finish(const ModelSource& model, const std::string& prompt);

  // Process ids of all workers that are listed.
  [[nodiscard]] std::vector<pid_t> Pids();
  // Brings the offload down and up again over the same state directory.
  void Restart();

 private:
  void Up();
  void Down();

  std::string worker_;
  SupervisionSettings settings_;
  std::string directory_;
  uv_loop_t loop_ = {};
  std::unique_ptr<DeafLauncher> launcher_;
  const Clock* clock_;
  std::unique_ptr<WorkerOffload> offload_;
  std::vector<std::string> warnings_;
  std::vector<std::string> log_;
};

// Open descriptors of this process.
int DescriptorCount();
bool ProcessExists(pid_t pid);

}  // namespace bulkhead::supervisor::test
