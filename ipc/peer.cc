#include "ipc/peer.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/sys.h"

namespace bulkhead::ipc {

bool PeerCredentials::InGroup(gid_t group) const {
  return gid == group || std::find(groups.begin(), groups.end(), group) != groups.end();
}

absl::StatusOr<PeerCredentials> ReadPeerCredentials(int socket) {
  ucred credentials = {};
  socklen_t size = sizeof(credentials);
  if (const int rc = sys::GetSockOpt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size); rc < 0) {
    return ErrnoError(-rc, "SO_PEERCRED");
  }
  PeerCredentials peer{credentials.pid, credentials.uid, credentials.gid, {}};
  std::vector<gid_t> groups(64);
  size = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
  int rc = sys::GetSockOpt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size);
  if (rc == -ERANGE) {
    // The kernel has written the length it needs.
    groups.resize(size / sizeof(gid_t));
    rc = sys::GetSockOpt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size);
  }
  if (rc < 0) return ErrnoError(-rc, "SO_PEERGROUPS");
  groups.resize(size / sizeof(gid_t));
  peer.groups = std::move(groups);
  return peer;
}

}  // namespace bulkhead::ipc
