// Starts, signals and reaps worker processes. An interface, so that tests can stand in for the kernel; PosixLauncher is
// the real one. Main thread only: the workers' parent-death signal follows the thread that made them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "supervisor/cgroup_tree.h"

namespace bulkhead::supervisor {

// How a process ended: by exit or by signal.
struct ProcessExit {
  int code = -1;   // -1 where a signal ended it
  int signal = 0;  // 0 where it exited
};

struct LaunchSpec {
  int model_fd = -1;                   // becomes descriptor 4
  std::vector<std::string> arguments;  // after the program's name
  bool control = true;                 // a socketpair, one end as descriptor 3
  bool capture_stdout = false;         // else /dev/null
  uint64_t data_soft_bytes = 0;        // RLIMIT_DATA; 0 = as inherited
  uint64_t data_hard_bytes = 0;
  std::string leaf;  // name of its cgroup leaf, where there is a delegated cgroup; empty: none
  LeafLimits leaf_limits;
};

struct LaunchedProcess {
  Pidfd process;        // readable (POLLIN) once it has ended
  UniqueFd control;     // SOCK_STREAM, our end
  UniqueFd stderr_end;  // pipe, our end, non-blocking
  UniqueFd stdout_end;  // likewise, where captured
  UniqueFd threads;     // its /proc/PID/task, opened before the process closes itself; may be empty
  std::unique_ptr<CgroupLeaf> leaf;
};

class ProcessLauncher {
 public:
  virtual ~ProcessLauncher() = default;

  // kSpawnFailed naming errno and path; nothing is left behind then.
  virtual absl::StatusOr<LaunchedProcess> Launch(const LaunchSpec& spec) = 0;
  // Signals the process and its whole group. Only for a process that was not reaped: until then its pid
  // cannot be another's. 0 or a negative errno.
  virtual int Signal(const Pidfd& process, int signal) = 0;
  // Kills what is left of the group, then takes the exit status, never waiting: nullopt while it lives.
  virtual absl::StatusOr<std::optional<ProcessExit>> Reap(const Pidfd& process) = 0;
  // Lets every thread of the process behind `threads` run on these CPUs only.
  virtual absl::Status SetCpus(const UniqueFd& threads, std::span<const int> cpus);
  // What it promised and cannot do, for people; empty where all is well.
  [[nodiscard]] virtual std::string Degraded() const { return {}; }
};

// posix_spawn with a new session, empty environment, default signal dispositions and an empty signal mask.
class PosixLauncher final : public ProcessLauncher {
 public:
  struct Options {
    std::string worker_path;        // opened here, once: a package upgrade does not surprise a running daemon
    CgroupTree* cgroups = nullptr;  // outlives the launcher; null: process groups and RLIMIT_DATA have to do
  };
  static absl::StatusOr<std::unique_ptr<PosixLauncher>> Create(Options options);

  absl::StatusOr<LaunchedProcess> Launch(const LaunchSpec& spec) override;
  int Signal(const Pidfd& process, int signal) override;
  absl::StatusOr<std::optional<ProcessExit>> Reap(const Pidfd& process) override;
  absl::Status SetCpus(const UniqueFd& threads, std::span<const int> cpus) override;
  [[nodiscard]] std::string Degraded() const override { return leaf_problem_; }

 private:
  PosixLauncher(Options options, UniqueFd binary) : options_(std::move(options)), binary_(std::move(binary)) {}

  std::unique_ptr<CgroupLeaf> PutIntoLeaf(const LaunchSpec& spec, pid_t pid);

  Options options_;
  UniqueFd binary_;
  std::string leaf_problem_;  // of the last worker that got no leaf
};

}  // namespace bulkhead::supervisor
