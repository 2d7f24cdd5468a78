// The socket that clients connect to: systemd's where it passed one, else our own, with mode and group as configured.
// Blocking; for start-up, with the state directory's lock held.
#pragma once

#include <string>

#include "base/fd.h"
#include "base/status.h"
#include "daemon/config.h"

namespace bulkhead::daemon {

struct ListeningSocket {
  UniqueFd fd;           // non-blocking
  std::string own_path;  // to be removed at the end; empty where systemd owns it
  UniqueFd records;      // what systemd kept of an earlier daemon, see records.h
};

// Errors name the path, the group or LISTEN_FDS.
absl::StatusOr<ListeningSocket> OpenListeningSocket(const Config& config);

}  // namespace bulkhead::daemon
