// How the worker ends itself: a line for the stderr that the daemon keeps, and an exit code of ipc/worker_abi.h. No
// destructor runs, for other threads may still be at work. Any thread.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace bulkhead::worker {

[[noreturn]] inline void Die(int code, const std::string& why) {
  std::fprintf(stderr, "bulkhead-worker: %s\n", why.c_str());
  std::_Exit(code);
}

}  // namespace bulkhead::worker
