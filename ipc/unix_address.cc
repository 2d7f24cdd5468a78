#include "ipc/unix_address.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/time.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

#include "base/sys.h"

namespace bulkhead::ipc {
namespace {

// A daemon that accepts no more lets its backlog fill up; connect then waits.
constexpr timeval kConnectPatience = {5, 0};

absl::Status Refused(int error, std::string_view path) {
  char buffer[128];
  const Reason reason = error == EACCES || error == EPERM ? Reason::kPermissionDenied : Reason::kDaemonUnreachable;
  return Error(reason, fmt::format("socket {}: {}", path, strerror_r(error, buffer, sizeof(buffer))));
}

absl::Status RemoveStale(std::string_view path) {
  const std::string name(path);
  struct stat info = {};
  if (const int rc = sys::Lstat(name.c_str(), &info); rc < 0) {
    return rc == -ENOENT ? absl::OkStatus() : ErrnoError(-rc, fmt::format("socket {}", path));
  }
  if (!S_ISSOCK(info.st_mode)) {
    return Error(Reason::kInvalidRequest, fmt::format("socket {}: something that is no socket stands there", path));
  }
  if (const int rc = sys::Unlink(name.c_str()); rc < 0) return ErrnoError(-rc, fmt::format("unlink of {}", path));
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> NewSocket(int flags) {
  const int fd = sys::Socket(AF_UNIX, SOCK_STREAM | flags, 0);
  if (fd < 0) return ErrnoError(-fd, "socket");
  return UniqueFd(fd);
}

}  // namespace

absl::StatusOr<UnixAddress> MakeUnixAddress(std::string_view path) {
  UnixAddress result;
  const size_t room = sizeof(result.address.sun_path) - 1;
  if (path.empty()) return Error(Reason::kInvalidRequest, "socket path: empty");
  if (path.size() > room) {
    return Error(Reason::kInvalidRequest,
                 fmt::format("socket path {}: {} bytes, limit {}; use a shorter directory", path, path.size(), room));
  }
  result.address.sun_family = AF_UNIX;
  std::memcpy(result.address.sun_path, path.data(), path.size());
  result.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1);
  return result;
}

absl::StatusOr<UniqueFd> ConnectUnix(std::string_view path) {
  ASSIGN_OR_RETURN(const UnixAddress address, MakeUnixAddress(path));
  ASSIGN_OR_RETURN(UniqueFd fd, NewSocket(0));
  (void)sys::SetSockOpt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &kConnectPatience, sizeof(kConnectPatience));
  if (const int rc = sys::Connect(fd.get(), address.get(), address.size); rc < 0) return Refused(-rc, path);
  const int flags = sys::Fcntl(fd.get(), F_GETFL);
  if (flags < 0) return ErrnoError(-flags, "fcntl");
  if (const int rc = sys::Fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK); rc < 0) return ErrnoError(-rc, "fcntl");
  return fd;
}

absl::StatusOr<UniqueFd> ListenUnix(std::string_view path, mode_t mode, int backlog) {
  ASSIGN_OR_RETURN(const UnixAddress address, MakeUnixAddress(path));
  ASSIGN_OR_RETURN(UniqueFd fd, NewSocket(SOCK_NONBLOCK));
  RETURN_IF_ERROR(RemoveStale(path));
  if (const int rc = sys::Bind(fd.get(), address.get(), address.size); rc < 0) {
    return ErrnoError(-rc, fmt::format("bind of {}", path));
  }
  // Nobody can connect before listen, so there is no moment with another mode.
  if (const int rc = sys::Chmod(address.address.sun_path, mode); rc < 0) {
    return ErrnoError(-rc, fmt::format("chmod of {}", path));
  }
  if (const int rc = sys::Listen(fd.get(), backlog); rc < 0) return ErrnoError(-rc, fmt::format("listen on {}", path));
  return fd;
}

}  // namespace bulkhead::ipc
