// `bulkhead`: the command-line client.
#include <csignal>

#include "client/cli/command_line.h"

int main(int argc, char** argv) {
  // `bulkhead run ... | head` ends like any other filter, also where a parent ignored the signal.
  std::signal(SIGPIPE, SIG_DFL);
  bulkhead::cli::ParsedCommandLine parsed = bulkhead::cli::ParseCommandLine(argc, argv);
  if (parsed.exit) return *parsed.exit;
  bulkhead::cli::ExitStatus status;
  {
    bulkhead::cli::Session session(parsed.command.session);
    status = parsed.command.verb(session);
  }
  if (status == bulkhead::cli::kInterrupted) {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
  return status;
}
