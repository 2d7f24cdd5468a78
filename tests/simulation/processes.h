// Processes that do not exist: what the supervisor sees of a worker (an end that can be polled, a control socket, its
// output) with a program of the test's behind it. Signals arrive as the test wants them to. Single-threaded.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "supervisor/memory_probe.h"
#include "supervisor/process_launcher.h"

namespace bulkhead::sim {

// One process, seen from inside. Exists until it was reaped.
struct Process {
  pid_t pid = 0;
  bool inspects = false;
  UniqueFd control;  // its ends
  UniqueFd errors;
  UniqueFd output;
  UniqueFd model;
  UniqueFd end_event;  // readable once it has ended
  std::optional<supervisor::ProcessExit> exit;
  std::vector<int> signals;  // arrived and not acted upon yet, in order
  bool stopped = false;      // SIGSTOP: does nothing; only SIGKILL has an effect
  bool deaf = false;         // uninterruptible: signals stay pending
  uint64_t private_bytes = 0;

  [[nodiscard]] bool alive() const { return !exit.has_value(); }
  // Ends it: its descriptors close, as a kernel does it, before the end can be seen.
  void End(supervisor::ProcessExit how);
  // Acts upon pending signals that end a process. True if one did.
  bool TakeSignals();
};

class Launcher final : public supervisor::ProcessLauncher {
 public:
  absl::StatusOr<supervisor::LaunchedProcess> Launch(const supervisor::LaunchSpec& spec) override;
  int Signal(const Pidfd& process, int signal) override;
  absl::StatusOr<std::optional<supervisor::ProcessExit>> Reap(const Pidfd& process) override;

  // The daemon has died: the kernel kills its children and nobody reaps them.
  void KillAll();

  [[nodiscard]] std::map<pid_t, std::unique_ptr<Process>>& processes() { return processes_; }
  [[nodiscard]] Process* Find(pid_t pid);
  [[nodiscard]] uint64_t launched() const { return launched_; }
  [[nodiscard]] uint64_t reaped() const { return reaped_; }
  // What the supervisor did that it must never do, such as signalling a process it has reaped.
  [[nodiscard]] const std::vector<std::string>& violations() const { return violations_; }

  // Asked before each launch: an errno makes it fail.
  std::function<int(const supervisor::LaunchSpec&)> spawn_fault;
  std::function<void(Process&)> launched_hook;
  // Whether a signal takes effect at once; else it stays pending until somebody calls TakeSignals.
  std::function<bool(Process&, int signal)> signal_at_once;

 private:
  std::map<pid_t, std::unique_ptr<Process>> processes_;
  pid_t last_pid_ = 1'000'000;
  uint64_t launched_ = 0;
  uint64_t reaped_ = 0;
  std::vector<std::string> violations_;
};

// What the kernel would say about memory.
class Memory final : public supervisor::MemoryProbe {
 public:
  explicit Memory(Launcher& launcher) : launcher_(launcher) {}
  supervisor::MachineMemory Machine() override { return machine; }
  std::unique_ptr<supervisor::ProcessMemory> Open(pid_t pid) override;
  uint64_t OutOfMemoryKills() override { return out_of_memory_kills; }

  supervisor::MachineMemory machine;
  uint64_t out_of_memory_kills = 0;

 private:
  Launcher& launcher_;
};

}  // namespace bulkhead::sim
