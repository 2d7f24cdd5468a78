// The system calls a worker may make: a LOAD set from before its file is parsed, and a smaller RUN set from before
// READY. Anything else kills the process with SIGSYS, which its supervisor reads as a sandbox violation. Both are built
// at once; entering one applies it to all threads. Neither can be left.
#pragma once

#include <memory>

#include "base/status.h"

namespace bulkhead::worker {

class SyscallFilters {
 public:
  // `control_fd` is the one socket messages may go through; `model_fd` the one file that may be mapped while loading.
  static absl::StatusOr<SyscallFilters> Build(int control_fd, int model_fd);

  // Any thread, once each, in this order.
  absl::Status EnterLoad();
  absl::Status EnterRun();

 private:
  struct Free {
    void operator()(void* context) const;
  };
  using Context = std::unique_ptr<void, Free>;

  SyscallFilters(Context load, Context run) : load_(std::move(load)), run_(std::move(run)) {}

  Context load_;
  Context run_;
};

}  // namespace bulkhead::worker
