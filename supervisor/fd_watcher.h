// A descriptor polled on a libuv loop. Owns the descriptor, whose number goes back to the kernel only after libuv's
// close callback: a reused number would otherwise get this one's events. Loop thread only.
#pragma once

#include <uv.h>

#include <functional>

#include "base/fd.h"
#include "base/status.h"

namespace bulkhead::supervisor {

class FdWatcher {
 public:
  FdWatcher() = default;
  ~FdWatcher() { Close(); }
  FdWatcher(const FdWatcher&) = delete;
  FdWatcher& operator=(const FdWatcher&) = delete;

  // Calls `readable` from the loop for as long as there is something to read (or the end of it). The watcher may be
  // closed or destroyed inside the call.
  absl::Status Open(uv_loop_t* loop, UniqueFd fd, std::function<void()> readable);
  void Close();
  [[nodiscard]] bool open() const { return state_ != nullptr; }
  [[nodiscard]] int fd() const;

 private:
  struct State;
  State* state_ = nullptr;  // freed by the close callback
};

}  // namespace bulkhead::supervisor
