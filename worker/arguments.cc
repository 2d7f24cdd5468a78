#include "worker/arguments.h"

#include <cstdio>
#include <cstdlib>

#include "ipc/worker_abi.h"
#include "worker/worker.h"

namespace bulkhead::worker {

std::optional<Arguments> ParseArguments(std::span<char* const> arguments) {
  Arguments result;
  for (const std::string_view argument : arguments) {
    if (argument == ipc::kInspectArgument) {
      result.inspect = true;
    } else if (argument == ipc::kInspectFrameArgument) {
      result.inspect = true;
      result.format = InspectFormat::kFrame;
    } else if (result.inspect && result.path.empty() && !argument.starts_with("-")) {
      result.path = argument;
    } else {
      return std::nullopt;
    }
  }
  return result;
}

void RunArguments(std::span<char* const> arguments, Hooks* hooks) {
  const auto parsed = ParseArguments(arguments);
  if (!parsed.has_value()) {
    std::fputs("usage: bulkhead-worker (started by bulkheadd), or bulkhead-worker --inspect[=frame] [FILE]\n", stderr);
    std::_Exit(ipc::kWorkerExitUsage);
  }
  if (parsed->inspect) RunInspect(parsed->path, parsed->format, hooks);
  RunWorker(hooks);
}

}  // namespace bulkhead::worker
