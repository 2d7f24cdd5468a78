// bulkhead-worker-test: the worker itself, with hooks (test_hooks.h). Its own arguments come first.
#include <span>

#include "tests/worker/test_hooks.h"
#include "worker/arguments.h"

int main(int argc, char** argv) {
  bulkhead::worker::TestHooks hooks;
  std::span<char* const> arguments(argv + 1, static_cast<size_t>(argc - 1));
  while (!arguments.empty() && hooks.TakeArgument(arguments.front())) arguments = arguments.subspan(1);
  bulkhead::worker::RunArguments(arguments, &hooks);
}
