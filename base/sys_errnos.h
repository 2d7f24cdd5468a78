// Which errors each wrapper of base/sys.h has to be survived with: what its manual page names and a correct caller can
// still meet. The one source of tests/faults/errno_test.cc, which makes every pair happen; a test of the repository
// holds the names against sys.cc.
#pragma once

#include <array>
#include <cerrno>
#include <initializer_list>
#include <string_view>

namespace bulkhead::sys {

struct WrapperErrnos {
  std::string_view wrapper;
  std::initializer_list<int> errnos;
};

inline constexpr WrapperErrnos kWrapperErrnos[] = {
    {"Open", {ENOENT, EACCES, EMFILE, ENFILE, EINTR, ENOSPC, EROFS, ENOMEM}},
    {"OpenAt", {ENOENT, EACCES, EMFILE, ELOOP, EINTR}},
    {"Close", {EINTR, EIO}},
    {"Read", {EINTR, EAGAIN, EIO}},
    {"Pread", {EINTR, EIO, ESRCH}},
    {"Write", {EINTR, EAGAIN, ENOSPC, EDQUOT, EIO, EPIPE}},
    {"Fstat", {EIO, ENOMEM, EOVERFLOW}},
    {"ListDirectory", {EACCES, EMFILE, ENOENT, ENOMEM}},
    {"ListOpenDirectory", {EMFILE, ENOENT, ENOMEM}},
    {"ReadLink", {ENOENT, EACCES, ENOMEM}},
    {"Lstat", {ENOENT, EACCES, ENOMEM}},
    {"Fsync", {EINTR, EIO, ENOSPC, EROFS}},
    {"Ftruncate", {EINTR, EIO, EPERM}},
    {"Fcntl", {EMFILE, EINVAL}},
    {"Rename", {ENOSPC, EROFS, EACCES, EIO}},
    {"Unlink", {ENOENT, EACCES, EROFS}},
    {"Mkdir", {EEXIST, EACCES, ENOSPC, EROFS}},
    {"Rmdir", {EBUSY, ENOENT, EACCES}},
    {"GetXattr", {ENODATA, EOPNOTSUPP, ENOENT}},
    {"Chmod", {EPERM, ENOENT}},
    {"Chown", {EPERM, ENOENT}},
    {"Flock", {EINTR, EWOULDBLOCK, ENOLCK}},
    {"Pipe", {EMFILE, ENFILE}},
    {"Poll", {EINTR, ENOMEM}},
    {"MemfdCreate", {EMFILE, ENFILE, ENOMEM}},
    {"EventFd", {EMFILE, ENFILE, ENOMEM}},
    {"Mmap", {ENOMEM, EAGAIN, ENODEV}},
    {"Munmap", {ENOMEM, EINVAL}},
    {"Madvise", {EAGAIN, EINVAL, ENOMEM}},
    {"Socket", {EMFILE, ENFILE, ENOBUFS, ENOMEM}},
    {"SocketPair", {EMFILE, ENFILE, ENOMEM}},
    {"Bind", {EADDRINUSE, EACCES, ENOENT, EROFS}},
    {"Listen", {EADDRINUSE, EOPNOTSUPP}},
    {"Accept", {EAGAIN, EINTR, ECONNABORTED, EMFILE, ENFILE, ENOMEM}},
    {"Connect", {EAGAIN, ECONNREFUSED, ENOENT, EACCES, EINTR}},
    {"Shutdown", {ENOTCONN}},
    {"Send", {EAGAIN, EPIPE, EINTR}},
    {"SendMsg", {EAGAIN, EINTR, EPIPE, ECONNRESET, ENOBUFS, ETOOMANYREFS}},
    {"RecvMsg", {EAGAIN, EINTR, ECONNRESET, ENOMEM}},
    {"GetSockOpt", {ENOPROTOOPT, EINVAL}},
    {"SetSockOpt", {ENOPROTOOPT, EINVAL}},
    {"PosixSpawn", {EAGAIN, ENOMEM, ENOENT, EACCES}},
    {"PidfdOpen", {EMFILE, ENFILE, ENOMEM, ENOSYS}},
    {"PidfdSendSignal", {ESRCH, EPERM}},
    {"WaitPidfd", {ECHILD, EINTR}},
    {"WaitPid", {EINTR, ECHILD}},
    {"KillGroup", {ESRCH, EPERM}},
    {"Prlimit", {EPERM, ESRCH}},
    {"Prctl", {EINVAL, EPERM}},
    {"SchedSetAffinity", {EINVAL, ESRCH}},
    {"SchedGetAffinity", {EINVAL, ESRCH}},
    {"SetPriority", {EACCES, EPERM}},
    {"LandlockCreateRuleset", {ENOSYS, EOPNOTSUPP, EINVAL}},
    {"LandlockRestrictSelf", {EPERM, E2BIG}},
    {"GetRandom", {ENOSYS, EINTR}},
};

}  // namespace bulkhead::sys
