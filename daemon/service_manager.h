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

  // The listening socket systemd opened for us; an empty descriptor where it did not. Anything but one Unix stream
  // socket that listens is an error.
  static absl::StatusOr<UniqueFd> TakeListeningSocket();
};

}  // namespace bulkhead::daemon
