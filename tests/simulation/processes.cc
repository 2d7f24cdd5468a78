#include "tests/simulation/processes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>

namespace bulkhead::sim {
namespace {

struct Ends {
  UniqueFd ours;
  UniqueFd theirs;
};

Ends Pipe() {
  int fds[2] = {-1, -1};
  if (::pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0) std::abort();
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

Ends SocketPair() {
  int fds[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) std::abort();
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

// Not through UniqueFd: the simulated kernel closes what it closes, also where the test makes the daemon's closes fail.
void CloseNow(UniqueFd& fd) {
  if (fd.valid()) ::close(fd.Release());
}

}  // namespace

void Process::End(supervisor::ProcessExit how) {
  if (exit.has_value()) return;
  exit = how;
  for (UniqueFd* fd : {&control, &errors, &output, &model}) CloseNow(*fd);
  const uint64_t one = 1;
  if (::write(end_event.get(), &one, sizeof(one)) != sizeof(one)) std::abort();
}

bool Process::TakeSignals() {
  if (!alive() || deaf) return false;
  for (const int signal : signals) {
    if (stopped && signal != SIGKILL) continue;
    if (signal == SIGKILL || signal == SIGTERM) {
      End({-1, signal});
      return true;
    }
  }
  return false;
}

absl::StatusOr<supervisor::LaunchedProcess> Launcher::Launch(const supervisor::LaunchSpec& spec) {
  if (const int error = spawn_fault ? spawn_fault(spec) : 0; error != 0) {
    return Error(Reason::kSpawnFailed, Message(ErrnoError(error, "simulated worker")));
  }
  auto process = std::make_unique<Process>();
  supervisor::LaunchedProcess launched;
  process->pid = ++last_pid_;
  process->inspects = !spec.control;
  process->end_event = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  process->model = UniqueFd(::dup(spec.model_fd));
  launched.process = Pidfd(process->pid, UniqueFd(::dup(process->end_event.get())));
  Ends errors = Pipe();
  launched.stderr_end = std::move(errors.ours);
  process->errors = std::move(errors.theirs);
  if (spec.capture_stdout) {
    Ends output = Pipe();
    launched.stdout_end = std::move(output.ours);
    process->output = std::move(output.theirs);
  }
  if (spec.control) {
    Ends control = SocketPair();
    launched.control = std::move(control.ours);
    process->control = std::move(control.theirs);
  }
  ++launched_;
  Process& made = *(processes_[process->pid] = std::move(process));
  if (launched_hook) launched_hook(made);
  return launched;
}

Process* Launcher::Find(pid_t pid) {
  const auto found = processes_.find(pid);
  return found == processes_.end() ? nullptr : found->second.get();
}

int Launcher::Signal(const Pidfd& process, int signal) {
  Process* target = Find(process.pid());
  if (target == nullptr) {
    violations_.push_back(fmt::format("signal {} to pid {}, which was reaped", signal, process.pid()));
    return -ESRCH;
  }
  target->signals.push_back(signal);
  if (!signal_at_once || signal_at_once(*target, signal)) target->TakeSignals();
  return 0;
}

absl::StatusOr<std::optional<supervisor::ProcessExit>> Launcher::Reap(const Pidfd& process) {
  const auto found = processes_.find(process.pid());
  if (found == processes_.end()) {
    violations_.push_back(fmt::format("pid {} reaped twice", process.pid()));
    return ErrnoError(ECHILD, "waitid");
  }
  if (found->second->alive()) return std::optional<supervisor::ProcessExit>();
  const supervisor::ProcessExit exit = *found->second->exit;
  processes_.erase(found);
  ++reaped_;
  return std::optional<supervisor::ProcessExit>(exit);
}

void Launcher::KillAll() { processes_.clear(); }

namespace {

class ProcessBytes final : public supervisor::ProcessMemory {
 public:
  ProcessBytes(Launcher& launcher, pid_t pid) : launcher_(launcher), pid_(pid) {}
  std::optional<uint64_t> PrivateBytes() override {
    const Process* process = launcher_.Find(pid_);
    if (process == nullptr || !process->alive()) return std::nullopt;
    return process->private_bytes;
  }

 private:
  Launcher& launcher_;
  pid_t pid_;
};

}  // namespace

std::unique_ptr<supervisor::ProcessMemory> Memory::Open(pid_t pid) {
  return std::make_unique<ProcessBytes>(launcher_, pid);
}

}  // namespace bulkhead::sim
