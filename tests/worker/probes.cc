#include "tests/worker/probes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>

namespace bulkhead::worker {
namespace {

// Each returns 0 or errno.
int Result(long rc) { return rc < 0 ? errno : 0; }

int OpenPath(pid_t) { return Result(open("/etc/passwd", O_RDONLY)); }

// The test listens on an abstract socket named after its own pid.
int ConnectToTest(pid_t daemon) {
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  if (fd < 0) return errno;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string name = fmt::format("bulkhead-fence-{}", daemon);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return Result(connect(fd, reinterpret_cast<const sockaddr*>(&address), size));
}

int BindSocket(pid_t) {
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  if (fd < 0) return errno;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;  // autobind: the kernel picks an abstract name
  return Result(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(sa_family_t)));
}

int Fork(pid_t) {
  const pid_t child = fork();
  if (child < 0) return errno;
  if (child == 0) _exit(0);
  return Result(waitpid(child, nullptr, 0));
}

int Execute(pid_t) {
  char program[] = "/bin/true";
  char* const arguments[] = {program, nullptr};
  char* const environment[] = {nullptr};
  return Result(execve(program, arguments, environment));
}

// The daemon goes on running; the kernel lets go of it when this process ends.
int Trace(pid_t daemon) { return Result(ptrace(PTRACE_SEIZE, daemon, nullptr, nullptr)); }

int MapCode(pid_t) {
  void* data = mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return data == MAP_FAILED ? errno : 0;
}

int ProtectCode(pid_t) {
  void* data = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return errno;
  return Result(mprotect(data, 4096, PROT_READ | PROT_EXEC));
}

// SIGURG is ignored by whoever does not ask for it, so that the test survives a hole in the fence.
int KillDaemon(pid_t daemon) { return Result(kill(daemon, SIGURG)); }

struct Probe {
  std::string_view name;
  int (*run)(pid_t daemon);
};

constexpr std::array kProbes = {
    Probe{"open", OpenPath},    Probe{"connect", ConnectToTest},
    Probe{"bind", BindSocket},  Probe{"fork", Fork},
    Probe{"exec", Execute},     Probe{"ptrace", Trace},
    Probe{"map-code", MapCode}, Probe{"protect-code", ProtectCode},
    Probe{"kill", KillDaemon},
};

}  // namespace

bool RunProbe(std::string_view name, pid_t daemon) {
  for (const Probe& probe : kProbes) {
    if (probe.name != name) continue;
    const int error = probe.run(daemon);
    const std::string line =
        error == 0 ? fmt::format("probe {}: done\n", name) : fmt::format("probe {}: errno {}\n", name, error);
    return write(STDERR_FILENO, line.data(), line.size()) > 0;
  }
  return false;
}

}  // namespace bulkhead::worker
