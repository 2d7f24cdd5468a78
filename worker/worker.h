// One worker process from its first instruction to its exit: the order of DESIGN section 4.
#pragma once

namespace bulkhead::worker {

class Hooks;

// Descriptors as ipc/worker_abi.h says. Does not return. `hooks`: null but in the test build.
[[noreturn]] void RunWorker(Hooks* hooks);

}  // namespace bulkhead::worker
