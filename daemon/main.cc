// bulkheadd: flags and configuration, the lock, the socket, and then the loop.
#include <fmt/format.h>
#include <uv.h>

#include <csignal>
#include <cstdio>

#include "base/build_id.h"
#include "base/sys.h"
#include "daemon/exit_codes.h"
#include "daemon/flags.h"
#include "daemon/listening_socket.h"
#include "daemon/log.h"
#include "daemon/manager.h"
#include "daemon/state_lock.h"

namespace bulkhead::daemon {
namespace {

int PrintConfig(const LoadedConfig& loaded) {
  std::string section;
  for (const ShownSetting& shown : Show(loaded)) {
    const size_t dot = shown.name.find('.');
    if (shown.name.substr(0, dot) != section) {
      section = shown.name.substr(0, dot);
      fmt::print("[{}]\n", section);
    }
    fmt::print("{} = {}  # {}\n", shown.name.substr(dot + 1), shown.value, shown.origin);
  }
  return kExitOk;
}

int Fatal(const absl::Status& status, int code = kExitFatal) {
  LogError(Message(status));
  ServiceManager().Status(Message(status));
  return code;
}

int Serve(ConfigSources sources, LoadedConfig loaded) {
  const Config config = loaded.config;
  if (absl::Status made = MakeDirectories(config.paths.state, 0700); !made.ok()) return Fatal(made);
  const auto lock = StateLock::Acquire(config.paths.state);
  if (ReasonOf(lock.status()) == Reason::kLimitExceeded) return Fatal(lock.status(), kExitLocked);
  if (!lock.ok()) return Fatal(lock.status());
  const auto admin_group = ResolveGroup(config.access.admin_group);
  if (!admin_group.ok()) return Fatal(admin_group.status(), kExitConfig);
  auto socket = OpenListeningSocket(config);
  if (!socket.ok()) return Fatal(socket.status());
  uv_loop_t loop;
  if (const int error = uv_loop_init(&loop); error < 0) return Fatal(ErrnoError(-error, "uv_loop_init"));
  int code = kExitOk;
  {
    Manager::Options options;
    options.loop = &loop;
    options.descriptors = DescriptorReserve::Raise();
    options.sources = std::move(sources);
    options.loaded = std::move(loaded);
    options.admin_group = *admin_group;
    options.listening = std::move(socket->fd);
    options.own_socket_path = socket->own_path;
    options.records = std::move(socket->records);
    options.keep_records = ServiceManager::CanKeep();
    auto manager = Manager::Create(std::move(options));
    absl::Status started = manager.ok() ? (*manager)->Start() : manager.status();
    if (started.ok()) {
      uv_run(&loop, UV_RUN_DEFAULT);
    } else {
      code = Fatal(started);
    }
  }
  uv_loop_close(&loop);
  return code;
}

// Signals that come before there is a loop to hear them wait; Manager lets them in.
void HoldSignals() {
  const sigset_t held = Manager::HandledSignals();
  pthread_sigmask(SIG_BLOCK, &held, nullptr);
}

int Run(int argc, char** argv) {
  HoldSignals();
  StartLog(LogFormOfStderr());
  std::signal(SIGPIPE, SIG_IGN);
  auto parsed = ParseFlags(argc, argv);
  if (const int* code = std::get_if<int>(&parsed)) return *code;
  const Flags& flags = std::get<Flags>(parsed);
  ConfigSources sources{Surroundings::OfThisProcess(), flags.config, flags.settings};
  auto loaded = sources.Load();
  if (!loaded.ok()) return Fatal(loaded.status(), kExitConfig);
  if (flags.print_config) return PrintConfig(*loaded);
  if (flags.check_config) {
    fmt::print("{}: ok\n", flags.config.empty() ? DefaultConfigPath(sources.surroundings) : flags.config);
    return kExitOk;
  }
  SetLogLevel(loaded->config.log.level);
  LogInfo(fmt::format("bulkheadd {} pid {}", BuildId(), sys::GetPid()));
  return Serve(std::move(sources), *std::move(loaded));
}

}  // namespace
}  // namespace bulkhead::daemon

int main(int argc, char** argv) { return bulkhead::daemon::Run(argc, argv); }
