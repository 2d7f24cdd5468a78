// One daemon per state directory: an exclusive lock on <state>/lock, which names its owner's pid. Held until destroyed
// or the process ends; the descriptor is not inherited by workers. The file itself is never removed: removing it would
// let two daemons lock two files of one name.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

#include "base/fd.h"
#include "base/status.h"

namespace bulkhead::daemon {

class StateLock {
 public:
  // The directory must exist. Where another process holds the lock: kLimitExceeded, naming its pid.
  static absl::StatusOr<StateLock> Acquire(const std::string& state_directory);

 private:
  explicit StateLock(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
};

// Creates `path` and its missing parents with `mode`; existing directories are left as they are.
absl::Status MakeDirectories(const std::string& path, mode_t mode);

}  // namespace bulkhead::daemon
