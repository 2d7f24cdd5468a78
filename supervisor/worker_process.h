// One child process on the loop: its end, its stderr, signals to it. The process is named by its pidfd throughout; its
// pid is only for people. Loop thread only.
//
// The owner must not let go of a WorkerProcess whose end was not reaped, except at the very end of the daemon.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "supervisor/fd_watcher.h"
#include "supervisor/loop.h"
#include "supervisor/output_tail.h"
#include "supervisor/process_launcher.h"

namespace bulkhead::supervisor {

class WorkerProcess {
 public:
  // `ended` is called from the loop while the process is over and not reaped.
  WorkerProcess(Loop& loop, ProcessLauncher& launcher, std::function<void()> ended)
      : loop_(&loop), launcher_(&launcher), ended_(std::move(ended)) {}

  // Starts it and takes its pidfd and pipes; the control socket goes to the caller. kSpawnFailed leaves nothing behind.
  absl::StatusOr<UniqueFd> Launch(const LaunchSpec& spec, size_t stdout_limit = 0);
  // SIGKILL goes to its whole cgroup leaf as well, where it has one.
  void Signal(int signal);
  absl::Status SetCpus(std::span<const int> cpus) { return launcher_->SetCpus(threads_, cpus); }
  // The exit status, once; nullopt while it lives. Afterwards nothing is polled or signalled any more.
  std::optional<ProcessExit> Reap();

  [[nodiscard]] pid_t pid() const { return process_.pid(); }
  // Launched and not reaped.
  [[nodiscard]] bool running() const { return running_; }
  // Null without a delegated cgroup, and once reaped.
  [[nodiscard]] CgroupLeaf* leaf() { return leaf_.get(); }
  // The leaf's last words, taken when the process was reaped.
  [[nodiscard]] const LeafReading& last_reading() const { return last_reading_; }
  [[nodiscard]] OutputTail& errors() { return errors_; }
  [[nodiscard]] OutputTail* output() { return output_ ? &*output_ : nullptr; }

 private:
  absl::Status Watch(LaunchedProcess& launched);

  Loop* loop_;
  ProcessLauncher* launcher_;
  std::function<void()> ended_;
  Pidfd process_;
  UniqueFd threads_;
  std::unique_ptr<CgroupLeaf> leaf_;
  LeafReading last_reading_;
  bool running_ = false;
  FdWatcher exit_;
  OutputTail errors_{OutputTail::Keep::kLast, kStderrTailBytes};
  std::optional<OutputTail> output_;
};

}  // namespace bulkhead::supervisor
