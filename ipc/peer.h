// Who is at the other end of a Unix socket, as the kernel recorded it when the connection was made.
#pragma once

#include <sys/types.h>

#include <vector>

#include "base/status.h"

namespace bulkhead::ipc {

struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;  // supplementary

  [[nodiscard]] bool InGroup(gid_t group) const;
};

// SO_PEERCRED and SO_PEERGROUPS; no name service is asked. kInternal names errno.
absl::StatusOr<PeerCredentials> ReadPeerCredentials(int socket);

}  // namespace bulkhead::ipc
