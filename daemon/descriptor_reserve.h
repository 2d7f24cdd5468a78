// How many descriptors the daemon may have, and how many of them clients never get: a worker that is to be started
// needs some (control socket, stderr, pidfd, its files in /proc), and must have them however many clients there are.
// The kernel gives out the lowest free number, so a number tells how many are in use. Pure but for Raise.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/status.h"

namespace bulkhead::daemon {

class DescriptorReserve {
 public:
  // No limit.
  DescriptorReserve() = default;
  explicit DescriptorReserve(uint64_t limit)
      : limit_(limit), for_files_(std::min<uint64_t>(256, limit / 4)), for_connections_(for_files_ * 2) {}

  // Raises the soft limit of this process to the hard one, which is the administrator's word.
  static DescriptorReserve Raise();

  // Whether a connection, or a model's file for a request, may keep descriptor `fd`: else kLimitExceeded with both
  // numbers. Connections give way first, so that those that are there can still be served.
  [[nodiscard]] absl::Status CheckConnection(int fd) const { return Check(fd, for_connections_); }
  [[nodiscard]] absl::Status CheckFile(int fd) const { return Check(fd, for_files_); }

  [[nodiscard]] uint64_t limit() const { return limit_; }

 private:
  [[nodiscard]] absl::Status Check(int fd, uint64_t spared) const;

  uint64_t limit_ = UINT64_MAX;
  uint64_t for_files_ = 0;
  uint64_t for_connections_ = 0;
};

}  // namespace bulkhead::daemon
