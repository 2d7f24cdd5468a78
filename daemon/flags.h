// The command line of bulkheadd.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "daemon/config.h"

namespace bulkhead::daemon {

struct Flags {
  std::string config;             // of --config; empty: not given
  std::vector<Setting> settings;  // of --socket, --models, --state, --worker
  bool check_config = false;
  bool print_config = false;
};

// The flags, or the exit code where everything was said already (--help, --version, a wrong flag).
std::variant<Flags, int> ParseFlags(int argc, char** argv);

}  // namespace bulkhead::daemon
