// Every system call the project makes, in one place, so that faults can be injected and a test can say that no raw
// call stands outside. Each wrapper returns what the call returns, or a negative errno; none of them touches errno for
// its caller, allocates, or retries EINTR unless it says so. Thread-safe.
#pragma once

#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace bulkhead::sys {

// A test's hook, asked before each call by the wrapper's name: 0 lets the call happen, a positive errno makes the
// wrapper fail with it instead. nullptr (the default) removes the hook. The hook must be thread-safe.
// Close closes all the same, as the kernel does where it reports an error.
using FaultHook = int (*)(const char* call);
void SetFaultHook(FaultHook hook);
// A test's hook for short transfers: how many of `size` bytes (at least 1) Read, Pread, Write, Send, SendMsg and
// RecvMsg may move in this call. Must be thread-safe.
using TransferHook = size_t (*)(const char* call, size_t size);
void SetTransferHook(TransferHook hook);
// A test's own source for GetRandom, so that a run can be repeated. Must be thread-safe.
using RandomHook = void (*)(void* data, size_t size);
void SetRandomHook(RandomHook hook);

// Files and descriptors. Open adds O_CLOEXEC.
int Open(const char* path, int flags, mode_t mode = 0);
int OpenAt(int dir, const char* path, int flags, mode_t mode = 0);
int Close(int fd);
ssize_t Read(int fd, void* data, size_t size);
ssize_t Pread(int fd, void* data, size_t size, off_t offset);
ssize_t Write(int fd, const void* data, size_t size);
int Fstat(int fd, struct stat* info);
// The names in an open directory but "." and "..", unsorted, by a descriptor of its own: -errno or 0.
int ListDirectory(int fd, std::vector<std::string>* names);
// The same through `fd` itself, from its beginning: of a /proc directory that cannot be opened again.
int ListOpenDirectory(int fd, std::vector<std::string>* names);
// The target of a symbolic link, not terminated: bytes written or -errno.
ssize_t ReadLink(const char* path, std::span<char> buffer);
int Lstat(const char* path, struct stat* info);
int Fsync(int fd);
int Ftruncate(int fd, off_t size);
int Fcntl(int fd, int command, int64_t argument = 0);
int Rename(const char* from, const char* to);
int Unlink(const char* path);
int Mkdir(const char* path, mode_t mode);
int Rmdir(const char* path);
// The value of an extended attribute: bytes read or -errno.
ssize_t GetXattr(const char* path, const char* name, std::span<char> buffer);
int Chmod(const char* path, mode_t mode);
int Chown(const char* path, uid_t uid, gid_t gid);
int Flock(int fd, int operation);
int Pipe(int fds[2]);  // O_CLOEXEC
int Poll(pollfd* fds, nfds_t count, int timeout_ms);
int MemfdCreate(const char* name, unsigned flags);
int EventFd(unsigned initial, int flags);

// Memory.
int Mmap(void** result, void* hint, size_t size, int protection, int flags, int fd, off_t offset);
int Munmap(void* data, size_t size);
int Madvise(void* data, size_t size, int advice);

// Sockets. Socket, SocketPair and Accept add SOCK_CLOEXEC.
int Socket(int domain, int type, int protocol);
int SocketPair(int domain, int type, int protocol, int fds[2]);
int Bind(int fd, const sockaddr* address, socklen_t size);
int Listen(int fd, int backlog);
int Accept(int fd);
int Connect(int fd, const sockaddr* address, socklen_t size);
int Shutdown(int fd, int how);
ssize_t Send(int fd, const void* data, size_t size, int flags);
ssize_t SendMsg(int fd, const msghdr* message, int flags);
ssize_t RecvMsg(int fd, msghdr* message, int flags);
int GetSockOpt(int fd, int level, int name, void* value, socklen_t* size);
int SetSockOpt(int fd, int level, int name, const void* value, socklen_t size);

// Processes. PosixSpawn returns 0 or the negative errno of fork or exec.
int PosixSpawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
               const posix_spawnattr_t* attributes, char* const arguments[], char* const environment[]);
int PidfdOpen(pid_t pid, unsigned flags = 0);
int PidfdSendSignal(int pidfd, int signal);
// waitid(P_PIDFD, ...); flags as waitid takes them.
int WaitPidfd(int pidfd, siginfo_t* info, int flags);
int WaitPid(pid_t pid, siginfo_t* info, int flags);
int KillGroup(pid_t leader, int signal);
int Prlimit(pid_t pid, int resource, const rlimit* limit, rlimit* old);
int Prctl(int option, unsigned long a2 = 0, unsigned long a3 = 0, unsigned long a4 = 0, unsigned long a5 = 0);
int SchedSetAffinity(pid_t tid, size_t size, const void* mask);
int SchedGetAffinity(pid_t tid, size_t size, void* mask);
int SetPriority(pid_t tid, int nice);
pid_t GetPid();
pid_t GetPpid();
uid_t GetUid();
uid_t GetEuid();
gid_t GetEgid();
pid_t GetTid();

// The sandbox. LandlockCreateRuleset with attr == nullptr and flags = 1 asks for the kernel's ABI version.
int LandlockCreateRuleset(const void* attr, size_t size, uint32_t flags);
int LandlockRestrictSelf(int ruleset, uint32_t flags);

// Randomness (getrandom without flags) and time.
ssize_t GetRandom(void* data, size_t size);
std::chrono::nanoseconds ClockNow(clockid_t clock);

// Reads a whole small file such as one of /proc, retrying EINTR and short reads, into `buffer`: bytes read, or a
// negative errno; what does not fit is left out.
ssize_t ReadSmallFile(int dir, const char* path, std::span<char> buffer);

}  // namespace bulkhead::sys
