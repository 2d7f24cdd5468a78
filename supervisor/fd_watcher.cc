#include "supervisor/fd_watcher.h"

#include <memory>
#include <utility>

namespace bulkhead::supervisor {

struct FdWatcher::State {
  uv_poll_t poll = {};
  UniqueFd fd;
  std::function<void()> readable;
};

absl::Status FdWatcher::Open(uv_loop_t* loop, UniqueFd fd, std::function<void()> readable) {
  Close();
  auto state = std::make_unique<State>();
  if (const int error = uv_poll_init(loop, &state->poll, fd.get()); error < 0)
    return ErrnoError(-error, "uv_poll_init");
  state->poll.data = state.get();
  state->fd = std::move(fd);
  state->readable = std::move(readable);
  state_ = state.release();
  const int error = uv_poll_start(&state_->poll, UV_READABLE | UV_DISCONNECT, [](uv_poll_t* poll, int, int) {
    // A copy: the callee may close the watcher, and with it the function that is running.
    const auto run = static_cast<State*>(poll->data)->readable;
    if (run) run();
  });
  if (error < 0) {
    Close();
    return ErrnoError(-error, "uv_poll_start");
  }
  return absl::OkStatus();
}

void FdWatcher::Close() {
  State* state = std::exchange(state_, nullptr);
  if (state == nullptr) return;
  uv_poll_stop(&state->poll);
  uv_close(reinterpret_cast<uv_handle_t*>(&state->poll),
           [](uv_handle_t* handle) { delete static_cast<State*>(handle->data); });
}

int FdWatcher::fd() const { return state_ == nullptr ? -1 : state_->fd.get(); }

}  // namespace bulkhead::supervisor
