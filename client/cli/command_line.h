// The command line of `bulkhead`: verbs, flags and their help. No state.
#pragma once

#include <functional>
#include <optional>

#include "client/cli/session.h"

namespace bulkhead::cli {

struct CommandLine {
  SessionOptions session;
  std::function<ExitStatus(Session&)> verb;
};

// What to run; or, in `exit`, the status to leave with: help was printed, or a usage error told (also as JSON where
// --json was given).
struct ParsedCommandLine {
  CommandLine command;
  std::optional<ExitStatus> exit;
};
ParsedCommandLine ParseCommandLine(int argc, char** argv);

}  // namespace bulkhead::cli
