#include "base/sys.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <ctime>

namespace bulkhead::sys {
namespace {

// More pieces than any caller of SendMsg hands over.
constexpr size_t kMaxPieces = 64;

std::atomic<FaultHook> g_hook{nullptr};
std::atomic<TransferHook> g_transfer_hook{nullptr};
std::atomic<RandomHook> g_random_hook{nullptr};

int Injected(const char* call) {
  const FaultHook hook = g_hook.load(std::memory_order_acquire);
  return hook == nullptr ? 0 : hook(call);
}

size_t Allowed(const char* call, size_t size) {
  const TransferHook hook = g_transfer_hook.load(std::memory_order_acquire);
  return hook == nullptr || size == 0 ? size : std::clamp<size_t>(hook(call, size), 1, size);
}

// The message with its pieces cut to what may be moved; `pieces` holds them.
msghdr Shortened(const char* call, const msghdr& message, std::array<iovec, kMaxPieces>& pieces) {
  msghdr shorter = message;
  if (g_transfer_hook.load(std::memory_order_acquire) == nullptr || message.msg_iovlen > kMaxPieces) return shorter;
  size_t size = 0;
  for (size_t i = 0; i < message.msg_iovlen; ++i) size += message.msg_iov[i].iov_len;
  size_t left = Allowed(call, size);
  shorter.msg_iov = pieces.data();
  shorter.msg_iovlen = 0;
  for (size_t i = 0; i < message.msg_iovlen && left > 0; ++i) {
    iovec& piece = pieces[shorter.msg_iovlen++] = message.msg_iov[i];
    piece.iov_len = std::min(piece.iov_len, left);
    left -= piece.iov_len;
  }
  return shorter;
}

// Takes `own`.
[[nodiscard]] int ReadNames(int own, std::vector<std::string>* names) {
  DIR* directory = ::fdopendir(own);
  if (directory == nullptr) {
    const int error = errno;
    ::close(own);
    return -error;
  }
  ::rewinddir(directory);
  errno = 0;
  while (const dirent* entry = ::readdir(directory)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names->push_back(name);
  }
  const int error = errno;
  ::closedir(directory);
  return -error;
}

}  // namespace

void SetFaultHook(FaultHook hook) { g_hook.store(hook, std::memory_order_release); }
void SetTransferHook(TransferHook hook) { g_transfer_hook.store(hook, std::memory_order_release); }
void SetRandomHook(RandomHook hook) { g_random_hook.store(hook, std::memory_order_release); }

// The body of a wrapper: the hook's errno if it injects one, else the call's result with errno folded in.
#define BULKHEAD_CALL(expr)                                       \
  do {                                                            \
    if (const int injected = Injected(__func__); injected != 0) { \
      return -injected;                                           \
    }                                                             \
    auto result = (expr);                                         \
    if (result < 0) result = -errno;                              \
    return result;                                                \
  } while (false)

int Open(const char* path, int flags, mode_t mode) { BULKHEAD_CALL(::open(path, flags | O_CLOEXEC, mode)); }
int OpenAt(int dir, const char* path, int flags, mode_t mode) {
  BULKHEAD_CALL(::openat(dir, path, flags | O_CLOEXEC, mode));
}
int Close(int fd) {
  const int injected = Injected(__func__);
  const int result = ::close(fd) < 0 ? -errno : 0;
  return injected != 0 ? -injected : result;
}
ssize_t Read(int fd, void* data, size_t size) { BULKHEAD_CALL(::read(fd, data, Allowed(__func__, size))); }
ssize_t Pread(int fd, void* data, size_t size, off_t offset) {
  BULKHEAD_CALL(::pread(fd, data, Allowed(__func__, size), offset));
}
ssize_t Write(int fd, const void* data, size_t size) { BULKHEAD_CALL(::write(fd, data, Allowed(__func__, size))); }
// The plain call, not newfstatat as the C library makes of it: the worker's filter then need not allow one that takes
// paths.
int Fstat(int fd, struct stat* info) { BULKHEAD_CALL(static_cast<int>(::syscall(SYS_fstat, fd, info))); }
int ListDirectory(int fd, std::vector<std::string>* names) {
  if (const int injected = Injected(__func__); injected != 0) return -injected;
  const int own = ::openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return own < 0 ? -errno : ReadNames(own, names);
}
int ListOpenDirectory(int fd, std::vector<std::string>* names) {
  if (const int injected = Injected(__func__); injected != 0) return -injected;
  const int own = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  return own < 0 ? -errno : ReadNames(own, names);
}
ssize_t ReadLink(const char* path, std::span<char> buffer) {
  BULKHEAD_CALL(::readlink(path, buffer.data(), buffer.size()));
}
int Lstat(const char* path, struct stat* info) { BULKHEAD_CALL(::lstat(path, info)); }
int Fsync(int fd) { BULKHEAD_CALL(::fsync(fd)); }
int Ftruncate(int fd, off_t size) { BULKHEAD_CALL(::ftruncate(fd, size)); }
int Fcntl(int fd, int command, int64_t argument) { BULKHEAD_CALL(::fcntl(fd, command, argument)); }
int Rename(const char* from, const char* to) { BULKHEAD_CALL(::rename(from, to)); }
int Unlink(const char* path) { BULKHEAD_CALL(::unlink(path)); }
int Mkdir(const char* path, mode_t mode) { BULKHEAD_CALL(::mkdir(path, mode)); }
int Rmdir(const char* path) { BULKHEAD_CALL(::rmdir(path)); }
ssize_t GetXattr(const char* path, const char* name, std::span<char> buffer) {
  BULKHEAD_CALL(::getxattr(path, name, buffer.data(), buffer.size()));
}
int Chmod(const char* path, mode_t mode) { BULKHEAD_CALL(::chmod(path, mode)); }
int Chown(const char* path, uid_t uid, gid_t gid) { BULKHEAD_CALL(::chown(path, uid, gid)); }
int Flock(int fd, int operation) { BULKHEAD_CALL(::flock(fd, operation)); }
int Pipe(int fds[2]) { BULKHEAD_CALL(::pipe2(fds, O_CLOEXEC)); }
int Poll(pollfd* fds, nfds_t count, int timeout_ms) { BULKHEAD_CALL(::poll(fds, count, timeout_ms)); }
int MemfdCreate(const char* name, unsigned flags) { BULKHEAD_CALL(::memfd_create(name, flags | MFD_CLOEXEC)); }
int EventFd(unsigned initial, int flags) { BULKHEAD_CALL(::eventfd(initial, flags | EFD_CLOEXEC)); }

int Mmap(void** result, void* hint, size_t size, int protection, int flags, int fd, off_t offset) {
  if (const int injected = Injected(__func__); injected != 0) return -injected;
  void* data = ::mmap(hint, size, protection, flags, fd, offset);
  if (data == MAP_FAILED) return -errno;
  *result = data;
  return 0;
}
int Munmap(void* data, size_t size) { BULKHEAD_CALL(::munmap(data, size)); }
int Madvise(void* data, size_t size, int advice) { BULKHEAD_CALL(::madvise(data, size, advice)); }

int Socket(int domain, int type, int protocol) { BULKHEAD_CALL(::socket(domain, type | SOCK_CLOEXEC, protocol)); }
int SocketPair(int domain, int type, int protocol, int fds[2]) {
  BULKHEAD_CALL(::socketpair(domain, type | SOCK_CLOEXEC, protocol, fds));
}
int Bind(int fd, const sockaddr* address, socklen_t size) { BULKHEAD_CALL(::bind(fd, address, size)); }
int Listen(int fd, int backlog) { BULKHEAD_CALL(::listen(fd, backlog)); }
int Accept(int fd) { BULKHEAD_CALL(::accept4(fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)); }
int Connect(int fd, const sockaddr* address, socklen_t size) { BULKHEAD_CALL(::connect(fd, address, size)); }
int Shutdown(int fd, int how) { BULKHEAD_CALL(::shutdown(fd, how)); }
ssize_t Send(int fd, const void* data, size_t size, int flags) {
  BULKHEAD_CALL(::send(fd, data, Allowed(__func__, size), flags));
}
ssize_t SendMsg(int fd, const msghdr* message, int flags) {
  std::array<iovec, kMaxPieces> pieces;
  const msghdr shorter = Shortened(__func__, *message, pieces);
  BULKHEAD_CALL(::sendmsg(fd, &shorter, flags));
}
ssize_t RecvMsg(int fd, msghdr* message, int flags) {
  if (const int injected = Injected(__func__); injected != 0) return -injected;
  std::array<iovec, kMaxPieces> pieces;
  msghdr shorter = Shortened(__func__, *message, pieces);
  const ssize_t result = ::recvmsg(fd, &shorter, flags);
  if (result < 0) return -errno;
  message->msg_namelen = shorter.msg_namelen;
  message->msg_controllen = shorter.msg_controllen;
  message->msg_flags = shorter.msg_flags;
  return result;
}
int GetSockOpt(int fd, int level, int name, void* value, socklen_t* size) {
  BULKHEAD_CALL(::getsockopt(fd, level, name, value, size));
}
int SetSockOpt(int fd, int level, int name, const void* value, socklen_t size) {
  BULKHEAD_CALL(::setsockopt(fd, level, name, value, size));
}

int PosixSpawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
               const posix_spawnattr_t* attributes, char* const arguments[], char* const environment[]) {
  if (const int injected = Injected(__func__); injected != 0) return -injected;
  return -::posix_spawn(pid, path, actions, attributes, arguments, environment);
}
int PidfdOpen(pid_t pid, unsigned flags) { BULKHEAD_CALL(static_cast<int>(::syscall(SYS_pidfd_open, pid, flags))); }
int PidfdSendSignal(int pidfd, int signal) {
  BULKHEAD_CALL(static_cast<int>(::syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0)));
}
int WaitPidfd(int pidfd, siginfo_t* info, int flags) {
  BULKHEAD_CALL(::waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(pidfd), info, flags));
}
int WaitPid(pid_t pid, siginfo_t* info, int flags) {
  BULKHEAD_CALL(::waitid(P_PID, static_cast<id_t>(pid), info, flags));
}
int KillGroup(pid_t leader, int signal) { BULKHEAD_CALL(::kill(-leader, signal)); }
int Prlimit(pid_t pid, int resource, const rlimit* limit, rlimit* old) {
  BULKHEAD_CALL(::prlimit(pid, static_cast<__rlimit_resource>(resource), limit, old));
}
int Prctl(int option, unsigned long a2, unsigned long a3, unsigned long a4, unsigned long a5) {
  BULKHEAD_CALL(::prctl(option, a2, a3, a4, a5));
}
int SchedSetAffinity(pid_t tid, size_t size, const void* mask) {
  BULKHEAD_CALL(static_cast<int>(::syscall(SYS_sched_setaffinity, tid, size, mask)));
}
int SchedGetAffinity(pid_t tid, size_t size, void* mask) {
  BULKHEAD_CALL(static_cast<int>(::syscall(SYS_sched_getaffinity, tid, size, mask)));
}
int SetPriority(pid_t tid, int nice) { BULKHEAD_CALL(::setpriority(PRIO_PROCESS, static_cast<id_t>(tid), nice)); }
pid_t GetPid() { return ::getpid(); }
pid_t GetPpid() { return ::getppid(); }
uid_t GetUid() { return ::getuid(); }
uid_t GetEuid() { return ::geteuid(); }
gid_t GetEgid() { return ::getegid(); }
pid_t GetTid() { return static_cast<pid_t>(::syscall(SYS_gettid)); }

int LandlockCreateRuleset(const void* attr, size_t size, uint32_t flags) {
  BULKHEAD_CALL(static_cast<int>(::syscall(SYS_landlock_create_ruleset, attr, size, flags)));
}
int LandlockRestrictSelf(int ruleset, uint32_t flags) {
  BULKHEAD_CALL(static_cast<int>(::syscall(SYS_landlock_restrict_self, ruleset, flags)));
}

ssize_t GetRandom(void* data, size_t size) {
  if (const RandomHook hook = g_random_hook.load(std::memory_order_acquire); hook != nullptr) {
    hook(data, size);
    return static_cast<ssize_t>(size);
  }
  BULKHEAD_CALL(::getrandom(data, size, 0));
}

std::chrono::nanoseconds ClockNow(clockid_t clock) {
  timespec now = {};
  ::clock_gettime(clock, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

ssize_t ReadSmallFile(int dir, const char* path, std::span<char> buffer) {
  const int fd = OpenAt(dir, path, O_RDONLY);
  if (fd < 0) return fd;
  size_t filled = 0;
  ssize_t result = 0;
  while (filled < buffer.size()) {
    const ssize_t got = Read(fd, buffer.data() + filled, buffer.size() - filled);
    if (got == -EINTR) continue;
    if (got <= 0) {
      result = got;
      break;
    }
    filled += static_cast<size_t>(got);
  }
  Close(fd);
  return result < 0 ? result : static_cast<ssize_t>(filled);
}

}  // namespace bulkhead::sys
