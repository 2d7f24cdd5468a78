#include "worker/arguments.h"

int main(int argc, char** argv) {
  bulkhead::worker::RunArguments({argv + 1, static_cast<size_t>(argc > 0 ? argc - 1 : 0)}, nullptr);
}
