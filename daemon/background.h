// Work that may wait on a disk, off the loop thread. `work` runs on a libuv pool thread and touches only what it owns;
// `after` runs on the loop's thread. Both run exactly once, also while the loop is being wound down.
#pragma once

#include <uv.h>

#include <functional>

namespace bulkhead::daemon {

void RunInBackground(uv_loop_t* loop, std::function<void()> work, std::function<void()> after);

}  // namespace bulkhead::daemon
