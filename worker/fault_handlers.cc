#include "worker/fault_handlers.h"

#include <csignal>
#include <cstddef>
#include <string_view>

#include "base/sys.h"
#include "ipc/worker_abi.h"

namespace bulkhead::worker {
namespace {

constexpr std::string_view kFileChanged =
    "bulkhead-worker: SIGBUS: a page of the model file can no longer be read; the file was changed or truncated\n";
constexpr std::string_view kNoInstruction =
    "bulkhead-worker: SIGILL: this processor lacks an instruction the chosen kernels use\n";

// SA_RESETHAND has put the default back: returning runs the faulting instruction again, and it ends the process.
void OnFault(int signal) {
  const std::string_view line = signal == SIGBUS ? kFileChanged : kNoInstruction;
  (void)sys::Write(ipc::kWorkerStderr, line.data(), line.size());
}

}  // namespace

void InstallFaultHandlers() {
  struct sigaction action = {};
  action.sa_handler = OnFault;
  action.sa_flags = SA_RESETHAND;
  sigaction(SIGBUS, &action, nullptr);
  sigaction(SIGILL, &action, nullptr);
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, nullptr);
}

}  // namespace bulkhead::worker
