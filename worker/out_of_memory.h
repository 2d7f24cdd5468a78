// How a worker ends when memory is refused: {wanted, in use, limit} on the control socket (as LoadFailed) and on
// stderr, from buffers that exist beforehand, then exit with kWorkerExitOutOfMemory. A refused operator new comes here
// by itself (not in sanitizer builds); refused maps come here from the load.
#pragma once

#include <atomic>
#include <cstdint>

#include "ipc/worker_abi.h"

namespace bulkhead::worker {

// Held while a thread writes to the control socket; `mid_frame` is kept true while a frame was sent in part. The report
// goes to the socket only between frames.
struct ControlWriter {
  std::atomic<bool> busy{false};
  std::atomic<bool> mid_frame{false};
};

// Opens this process's memory statistics (they are closed to it later) and remembers the socket. `writer` lives for
// ever.
void PrepareOutOfMemory(int control_fd, ControlWriter* writer);

// The limit to report where RLIMIT_DATA is not set; 0 = none.
void SetMemoryLimit(uint64_t limit_bytes);

// Private bytes as RLIMIT_DATA counts them; 0 = not known. Async-signal-safe.
uint64_t PrivateBytesInUse();

// RLIMIT_DATA's soft limit, else what SetMemoryLimit said. Async-signal-safe.
uint64_t MemoryLimit();

// Any thread; allocates nothing.
[[noreturn]] void ExitOutOfMemory(const ipc::OutOfMemoryReport& report);

}  // namespace bulkhead::worker
