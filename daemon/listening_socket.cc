#include "daemon/listening_socket.h"

#include <fcntl.h>

#include "base/sys.h"
#include "daemon/access.h"
#include "daemon/service_manager.h"
#include "daemon/state_lock.h"
#include "ipc/unix_address.h"

namespace bulkhead::daemon {
namespace {

std::string ParentOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

absl::StatusOr<ListeningSocket> OpenListeningSocket(const Config& config) {
  ASSIGN_OR_RETURN(ServiceManager::Passed all, ServiceManager::TakeDescriptors());
  UniqueFd passed = std::move(all.listening);
  if (passed.valid()) {
    const int flags = sys::Fcntl(passed.get(), F_GETFL);
    if (const int error = sys::Fcntl(passed.get(), F_SETFL, flags | O_NONBLOCK); error < 0) {
      return ErrnoError(-error, "LISTEN_FDS");
    }
    return ListeningSocket{std::move(passed), "", std::move(all.records)};
  }
  const std::string& path = config.paths.socket;
  ASSIGN_OR_RETURN(const std::optional<gid_t> group, ResolveGroup(config.access.group));
  RETURN_IF_ERROR(MakeDirectories(ParentOf(path), 0755));
  // Nobody else gets in before the group is the right one.
  ASSIGN_OR_RETURN(UniqueFd fd, ipc::ListenUnix(path, group ? 0600 : config.access.socket_mode, 1024));
  if (group) {
    int error = sys::Chown(path.c_str(), static_cast<uid_t>(-1), *group);
    if (error == 0) error = sys::Chmod(path.c_str(), config.access.socket_mode);
    if (error < 0) return ErrnoError(-error, path);
  }
  return ListeningSocket{std::move(fd), path, std::move(all.records)};
}

}  // namespace bulkhead::daemon
