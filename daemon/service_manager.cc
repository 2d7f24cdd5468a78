#include "daemon/service_manager.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>

#include <cstdlib>
#include <string_view>

namespace bulkhead::daemon {
namespace {

constexpr std::string_view kRecordsName = "bulkhead-records";

}  // namespace

void ServiceManager::Ready(const std::string& status) {
  sd_notify(0, fmt::format("READY=1\nSTATUS={}", status).c_str());
}
void ServiceManager::Status(const std::string& status) { sd_notify(0, fmt::format("STATUS={}", status).c_str()); }

void ServiceManager::Reloading() {
  const auto now = std::chrono::duration_cast<std::chrono::microseconds>(SystemClock().Monotonic()).count();
  sd_notify(0, fmt::format("RELOADING=1\nMONOTONIC_USEC={}", now).c_str());
}

void ServiceManager::Stopping(const std::string& status, Duration within) {
  const auto microseconds = std::chrono::duration_cast<std::chrono::microseconds>(within).count();
  sd_notify(0, fmt::format("STOPPING=1\nSTATUS={}\nEXTEND_TIMEOUT_USEC={}", status, microseconds).c_str());
}

void ServiceManager::Alive() { sd_notify(0, "WATCHDOG=1"); }

std::optional<Duration> ServiceManager::WatchdogInterval() const {
  uint64_t microseconds = 0;
  if (sd_watchdog_enabled(0, &microseconds) <= 0) return std::nullopt;
  // A third, so that one late turn of the loop is not yet a failure.
  return std::chrono::microseconds(microseconds / 3);
}

absl::StatusOr<ServiceManager::Passed> ServiceManager::TakeDescriptors() {
  char** names = nullptr;
  const int count = sd_listen_fds_with_names(0, &names);
  if (count < 0) return ErrnoError(-count, "LISTEN_FDS");
  Passed passed;
  int sockets = 0;
  for (int i = 0; i < count; ++i) {
    UniqueFd fd(SD_LISTEN_FDS_START + i);
    if (std::string_view(names[i]) == kRecordsName) {
      passed.records = std::move(fd);
    } else {
      ++sockets;
      passed.listening = std::move(fd);
    }
    std::free(names[i]);
  }
  std::free(names);
  sd_listen_fds(1);
  if (sockets > 1) {
    return Error(Reason::kInvalidRequest, fmt::format("LISTEN_FDS: {} sockets passed, 1 expected", sockets));
  }
  if (sockets == 1 && sd_is_socket_unix(passed.listening.get(), SOCK_STREAM, 1, nullptr, 0) <= 0) {
    return Error(Reason::kInvalidRequest, "LISTEN_FDS: not a listening Unix stream socket");
  }
  return passed;
}

bool ServiceManager::CanKeep() { return std::getenv("NOTIFY_SOCKET") != nullptr; }

absl::Status ServiceManager::Keep(int records) {
  const std::string state = fmt::format("FDSTORE=1\nFDNAME={}", kRecordsName);
  const int sent = sd_pid_notify_with_fds(0, 0, state.c_str(), &records, 1);
  if (sent < 0) return ErrnoError(-sent, "FDSTORE");
  return absl::OkStatus();
}

}  // namespace bulkhead::daemon
