// A socket path as the kernel takes it.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <string_view>

#include "base/fd.h"
#include "base/status.h"

namespace bulkhead::ipc {

struct UnixAddress {
  sockaddr_un address = {};
  socklen_t size = 0;

  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

// kInvalidRequest for an empty path or one that does not fit sun_path (107 bytes and a zero), naming both lengths.
absl::StatusOr<UnixAddress> MakeUnixAddress(std::string_view path);

// A connected, non-blocking stream socket. kDaemonUnreachable names the path and errno, kPermissionDenied likewise.
absl::StatusOr<UniqueFd> ConnectUnix(std::string_view path);

// A bound, listening, non-blocking stream socket with this mode. A stale socket file at `path` is replaced; anything
// else there is an error. The caller holds the lock that makes a socket found there a stale one.
absl::StatusOr<UniqueFd> ListenUnix(std::string_view path, mode_t mode, int backlog);

}  // namespace bulkhead::ipc
