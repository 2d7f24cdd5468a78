#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <spawn.h>
#include <sys/wait.h>

#include <array>
#include <charconv>
#include <csignal>
#include <cstring>

#include "base/clock.h"
#include "base/sys.h"
#include "ipc/worker_abi.h"
#include "supervisor/process_launcher.h"

namespace bulkhead::supervisor {
namespace {

// Source descriptors are moved up here first, so that putting one at its place never overwrites another.
constexpr int kFirstSourceFd = 10;

absl::StatusOr<UniqueFd> MovedUp(int fd, const char* what) {
  const int moved = sys::Fcntl(fd, F_DUPFD_CLOEXEC, kFirstSourceFd);
  if (moved < 0) return Error(Reason::kSpawnFailed, Message(ErrnoError(-moved, what)));
  return UniqueFd(moved);
}

struct Pair {
  UniqueFd ours;
  UniqueFd theirs;
};

absl::StatusOr<Pair> MakePipe(const char* what) {
  int fds[2];
  if (const int error = sys::Pipe(fds); error < 0)
    return Error(Reason::kSpawnFailed, Message(ErrnoError(-error, what)));
  UniqueFd ours(fds[0]);
  UniqueFd theirs(fds[1]);
  sys::Fcntl(ours.get(), F_SETFL, O_NONBLOCK);
  ASSIGN_OR_RETURN(UniqueFd moved, MovedUp(theirs.get(), what));
  return Pair{std::move(ours), std::move(moved)};
}

absl::StatusOr<Pair> MakeSocketPair() {
  int fds[2];
  if (const int error = sys::SocketPair(AF_UNIX, SOCK_STREAM, 0, fds); error < 0) {
    return Error(Reason::kSpawnFailed, Message(ErrnoError(-error, "socketpair")));
  }
  UniqueFd ours(fds[0]);
  UniqueFd theirs(fds[1]);
  ASSIGN_OR_RETURN(UniqueFd moved, MovedUp(theirs.get(), "control socket"));
  return Pair{std::move(ours), std::move(moved)};
}

class Actions {
 public:
  Actions() { posix_spawn_file_actions_init(&actions_); }
  ~Actions() { posix_spawn_file_actions_destroy(&actions_); }
  Actions(const Actions&) = delete;
  Actions& operator=(const Actions&) = delete;
  void Put(int source, int target) { posix_spawn_file_actions_adddup2(&actions_, source, target); }
  void Null(int target, int flags) { posix_spawn_file_actions_addopen(&actions_, target, "/dev/null", flags, 0); }
  [[nodiscard]] const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

class Attributes {
 public:
  Attributes() {
    posix_spawnattr_init(&attributes_);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes_, &none);
    sigset_t all;
    sigfillset(&all);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~Attributes() { posix_spawnattr_destroy(&attributes_); }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  [[nodiscard]] const posix_spawnattr_t* get() const { return &attributes_; }

 private:
  posix_spawnattr_t attributes_;
};

ProcessExit ExitOf(const siginfo_t& info) {
  ProcessExit exit;
  if (info.si_code == CLD_EXITED) {
    exit.code = info.si_status;
  } else {
    exit.signal = info.si_status;
  }
  return exit;
}

// A process that exists but cannot be supervised: it must not outlive this call. This waits for a SIGKILL to take
// effect, which a process that has only just been made does at once; but never for longer than a moment, should the
// kernel have refused the signal.
void KillUnwatched(pid_t pid) {
  sys::KillGroup(pid, SIGKILL);
  const Duration end = SystemClock().Monotonic() + std::chrono::seconds(1);
  while (SystemClock().Monotonic() < end) {
    siginfo_t info = {};
    const int error = sys::WaitPid(pid, &info, WEXITED | WNOHANG);
    if (error < 0 && error != -EINTR) return;
    if (error == 0 && info.si_pid != 0) return;
    sys::Poll(nullptr, 0, 1);
  }
}

int WaitRetrying(const Pidfd& process, siginfo_t* info, int flags) {
  int error = 0;
  do {
    *info = {};
    error = sys::WaitPidfd(process.fd(), info, flags);
  } while (error == -EINTR);
  return error;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PosixLauncher>> PosixLauncher::Create(Options options) {
  UniqueFd binary(sys::Open(options.worker_path.c_str(), O_PATH));
  if (!binary.valid()) return Error(Reason::kSpawnFailed, Message(ErrnoError(-binary.get(), options.worker_path)));
  ASSIGN_OR_RETURN(UniqueFd moved, MovedUp(binary.get(), options.worker_path.c_str()));
  return std::unique_ptr<PosixLauncher>(new PosixLauncher(std::move(options), std::move(moved)));
}

absl::StatusOr<LaunchedProcess> PosixLauncher::Launch(const LaunchSpec& spec) {
  Actions actions;
  LaunchedProcess launched;
  Pair control;
  Pair output;
  ASSIGN_OR_RETURN(Pair errors, MakePipe("stderr pipe"));
  ASSIGN_OR_RETURN(UniqueFd model, MovedUp(spec.model_fd, "model descriptor"));
  actions.Null(0, O_RDONLY);
  if (spec.capture_stdout) {
    ASSIGN_OR_RETURN(output, MakePipe("stdout pipe"));
    actions.Put(output.theirs.get(), 1);
  } else {
    actions.Null(1, O_WRONLY);
  }
  actions.Put(errors.theirs.get(), ipc::kWorkerStderr);
  if (spec.control) {
    ASSIGN_OR_RETURN(control, MakeSocketPair());
    actions.Put(control.theirs.get(), ipc::kWorkerControl);
  }
  actions.Put(model.get(), ipc::kWorkerModel);

  std::string program = "bulkhead-worker";
  std::vector<std::string> arguments = spec.arguments;
  std::vector<char*> argv = {program.data()};
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  char* environment[] = {nullptr};
  const Attributes attributes;
  const std::string path = fmt::format("/proc/self/fd/{}", binary_.get());
  pid_t pid = -1;
  if (const int error = sys::PosixSpawn(&pid, path.c_str(), actions.get(), attributes.get(), argv.data(), environment);
      error < 0) {
    return Error(Reason::kSpawnFailed, Message(ErrnoError(-error, options_.worker_path)));
  }
  const int pidfd = sys::PidfdOpen(pid);
  if (pidfd < 0) {
    KillUnwatched(pid);
    return Error(Reason::kSpawnFailed, Message(ErrnoError(-pidfd, "pidfd_open")));
  }
  launched.process = Pidfd(pid, UniqueFd(pidfd));
  if (spec.data_soft_bytes > 0) {
    const rlimit limit = {spec.data_soft_bytes, std::max(spec.data_soft_bytes, spec.data_hard_bytes)};
    if (const int error = sys::Prlimit(pid, RLIMIT_DATA, &limit, nullptr); error < 0) {
      KillUnwatched(pid);
      return Error(Reason::kSpawnFailed, Message(ErrnoError(-error, "prlimit(RLIMIT_DATA)")));
    }
  }
  launched.leaf = PutIntoLeaf(spec, pid);
  launched.threads = UniqueFd(sys::Open(fmt::format("/proc/{}/task", pid).c_str(), O_RDONLY | O_DIRECTORY));
  launched.control = std::move(control.ours);
  launched.stderr_end = std::move(errors.ours);
  launched.stdout_end = std::move(output.ours);
  return launched;
}

// A cgroup that somebody broke costs the leaf, not the service: the other fences hold, and Degraded says so.
std::unique_ptr<CgroupLeaf> PosixLauncher::PutIntoLeaf(const LaunchSpec& spec, pid_t pid) {
  if (options_.cgroups == nullptr || spec.leaf.empty()) return nullptr;
  auto leaf = options_.cgroups->MakeLeaf(spec.leaf, spec.leaf_limits);
  const absl::Status entered = leaf.ok() ? (*leaf)->Enter(pid) : leaf.status();
  leaf_problem_ = entered.ok() ? "" : fmt::format("a worker runs without its cgroup: {}", Message(entered));
  return entered.ok() ? *std::move(leaf) : nullptr;
}

int PosixLauncher::Signal(const Pidfd& process, int signal) {
  // The group first: it is named by the leader's pid, which stays taken until the leader is reaped.
  sys::KillGroup(process.pid(), signal);
  return sys::PidfdSendSignal(process.fd(), signal);
}

absl::StatusOr<std::optional<ProcessExit>> PosixLauncher::Reap(const Pidfd& process) {
  siginfo_t info = {};
  int error = WaitRetrying(process, &info, WEXITED | WNOHANG | WNOWAIT);
  if (error < 0) return ErrnoError(-error, "waitid");
  if (info.si_pid == 0) return std::optional<ProcessExit>();
  sys::KillGroup(process.pid(), SIGKILL);
  error = WaitRetrying(process, &info, WEXITED | WNOHANG);
  if (error < 0) return ErrnoError(-error, "waitid");
  return std::optional<ProcessExit>(ExitOf(info));
}

absl::Status ProcessLauncher::SetCpus(const UniqueFd&, std::span<const int>) { return absl::OkStatus(); }

absl::Status PosixLauncher::SetCpus(const UniqueFd& threads, std::span<const int> cpus) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (const int cpu : cpus) {
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &mask);
  }
  std::vector<std::string> names;
  if (const int error = sys::ListOpenDirectory(threads.get(), &names); error < 0) {
    return ErrnoError(-error, "threads of a worker");
  }
  absl::Status result;
  for (const std::string& name : names) {
    pid_t thread = 0;
    std::from_chars(name.data(), name.data() + name.size(), thread);
    const int error = thread > 0 ? sys::SchedSetAffinity(thread, sizeof(mask), &mask) : 0;
    // One that has just ended needs no CPU.
    if (error < 0 && error != -ESRCH) result = ErrnoError(-error, fmt::format("affinity of thread {}", thread));
  }
  return result;
}

}  // namespace bulkhead::supervisor
