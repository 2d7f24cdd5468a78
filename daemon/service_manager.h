// What systemd is told and asked (sd_notify(3), sd_listen_fds(3)). Without systemd every call does nothing. Loop
// thread.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace bulkhead::daemon {

class ServiceManager {
 public:
  // Requests are served from now on.
  void Ready(const std::string& status);
  void Status(const std::string& status);
  void Reloading();
  // `within`: how long this may take, so that a long drain is not cut short by TimeoutStopSec=.
  void Stopping(const std::string& status, Duration within);
  // The loop has come round.
  void Alive();
  // How often Alive must be called; nullopt where nobody watches.
  [[nodiscard]] std::optional<Duration> WatchdogInterval() const;

  // Descriptors systemd passed us; empty ones where it did not.
  struct Passed {
    UniqueFd listening;  // one Unix stream socket that listens; anything else is an error
    UniqueFd records;    // what an earlier daemon gave to the descriptor store, see records.h
  };
  static absl::StatusOr<Passed> TakeDescriptors();
  // Whether somebody is there to keep descriptors for us.
  static bool CanKeep();
  // Gives the records to the descriptor store, from which the next daemon gets them.
  static absl::Status Keep(int records);
};

}  // namespace bulkhead::daemon
