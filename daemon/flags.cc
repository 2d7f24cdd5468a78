#include "daemon/flags.h"

#include <CLI/CLI.hpp>

#include "base/build_id.h"
#include "daemon/exit_codes.h"

namespace bulkhead::daemon {

std::variant<Flags, int> ParseFlags(int argc, char** argv) {
  CLI::App app{"bulkheadd: runs language models, one isolated process per model", "bulkheadd"};
  Flags flags;
  std::string socket;
  std::string state;
  std::string worker;
  std::vector<std::string> models;
  app.add_option("--config", flags.config, "configuration file")->option_text("FILE");
  app.add_option("--socket", socket, "socket to serve on (paths.socket)")->option_text("PATH");
  app.add_option("--models", models, "directory of models (paths.models); may be repeated")->option_text("DIR");
  app.add_option("--state", state, "state directory (paths.state)")->option_text("DIR");
  app.add_option("--worker", worker, "the bulkhead-worker program (paths.worker)")->option_text("PATH");
  app.add_flag("--check-config", flags.check_config, "say whether the configuration is right, and exit");
  app.add_flag("--print-config", flags.print_config, "print what would be in force and where it comes from, and exit");
  app.set_version_flag("--version", "bulkheadd " + std::string(BuildId()));
  app.footer(
      "Exit codes: 0 stopped as asked; 1 fatal error; 2 wrong flags; 75 another daemon has the state directory; "
      "78 wrong configuration.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  if (!socket.empty()) flags.settings.push_back({"paths.socket", {socket}, false, "--socket", kFromFlag});
  if (!state.empty()) flags.settings.push_back({"paths.state", {state}, false, "--state", kFromFlag});
  if (!worker.empty()) flags.settings.push_back({"paths.worker", {worker}, false, "--worker", kFromFlag});
  if (!models.empty()) flags.settings.push_back({"paths.models", models, true, "--models", kFromFlag});
  return flags;
}

}  // namespace bulkhead::daemon
