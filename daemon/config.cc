#include "daemon/config.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <climits>
#include <cstdlib>

#include "base/fd.h"
#include "base/sys.h"
#include "daemon/config_keys.h"

namespace bulkhead::daemon {
namespace {

std::string Variable(const Surroundings& surroundings, const std::string& name) {
  const auto found = surroundings.environment.find(name);
  return found == surroundings.environment.end() ? "" : found->second;
}

// systemd gives several directories separated by colons; the first is ours.
std::string FirstDirectory(const std::string& value) { return value.substr(0, value.find(':')); }

bool IsSystemService(const Surroundings& surroundings) {
  return surroundings.uid == 0 || Variable(surroundings, "STATE_DIRECTORY").starts_with("/var/");
}

// $variable, or $HOME/fallback.
std::string XdgDirectory(const Surroundings& surroundings, const std::string& variable, const std::string& fallback) {
  const std::string value = Variable(surroundings, variable);
  return value.starts_with('/') ? value : fmt::format("{}/{}", Variable(surroundings, "HOME"), fallback);
}

std::string RuntimeDirectory(const Surroundings& surroundings) {
  if (IsSystemService(surroundings)) return "/run/bulkhead";
  const std::string runtime = Variable(surroundings, "XDG_RUNTIME_DIR");
  return runtime.starts_with('/') ? runtime + "/bulkhead" : fmt::format("/tmp/bulkhead-{}", surroundings.uid);
}

// A file's name and a flag's say what they are by themselves.
std::string InWords(const LoadedConfig::Origin& origin) {
  const bool plain = origin.source == kFromFile || origin.source == kFromConfD || origin.source == kFromFlag;
  return plain ? origin.place : fmt::format("{} {}", origin.source, origin.place);
}

absl::Status CheckTogether(const Config& config) {
  if (config.breaker.max_backoff < config.breaker.backoff) {
    return Error(Reason::kInvalidRequest, "breaker.max_backoff: shorter than breaker.backoff");
  }
  if (config.queue.per_model > config.queue.total) {
    return Error(Reason::kInvalidRequest, fmt::format("queue.per_model: {} is more than queue.total {}",
                                                      config.queue.per_model, config.queue.total));
  }
  return absl::OkStatus();
}

}  // namespace

LoadedConfig DefaultConfig(const Surroundings& surroundings) {
  LoadedConfig loaded;
  Config::Paths& paths = loaded.config.paths;
  const bool system = IsSystemService(surroundings);
  paths.state =
      system ? "/var/lib/bulkhead" : XdgDirectory(surroundings, "XDG_STATE_HOME", ".local/state") + "/bulkhead";
  if (const std::string given = FirstDirectory(Variable(surroundings, "STATE_DIRECTORY")); !given.empty()) {
    paths.state = given;
    loaded.origins["paths.state"] = {kFromEnvironment, "STATE_DIRECTORY"};
  }
  std::string runtime = RuntimeDirectory(surroundings);
  if (const std::string given = FirstDirectory(Variable(surroundings, "RUNTIME_DIRECTORY")); !given.empty()) {
    runtime = given;
    loaded.origins["paths.socket"] = {kFromEnvironment, "RUNTIME_DIRECTORY"};
  }
  paths.socket = runtime + "/bulkhead.sock";
  paths.models = {system ? "/var/lib/bulkhead/models"
                         : XdgDirectory(surroundings, "XDG_DATA_HOME", ".local/share") + "/bulkhead/models"};
  paths.worker = surroundings.worker;
  return loaded;
}

std::string DefaultConfigPath(const Surroundings& surroundings) {
  const std::string given = FirstDirectory(Variable(surroundings, "CONFIGURATION_DIRECTORY"));
  if (!given.empty()) return given + "/bulkhead.toml";
  if (IsSystemService(surroundings)) return "/etc/bulkhead/bulkhead.toml";
  return XdgDirectory(surroundings, "XDG_CONFIG_HOME", ".config") + "/bulkhead/bulkhead.toml";
}

absl::StatusOr<LoadedConfig> Apply(LoadedConfig base, const std::vector<Setting>& settings) {
  for (const Setting& setting : settings) {
    const ConfigKey* key = FindConfigKey(setting.name);
    const absl::Status status =
        key == nullptr ? Error(Reason::kInvalidRequest, "unknown key") : Assign(*key, base.config, setting);
    if (!status.ok()) {
      return Error(Reason::kInvalidRequest, fmt::format("{}: {}: {}", setting.origin, setting.name, Message(status)));
    }
    base.origins[setting.name] = {setting.source, setting.origin};
  }
  RETURN_IF_ERROR(CheckTogether(base.config));
  return base;
}

std::vector<ShownSetting> Show(const LoadedConfig& loaded) {
  std::vector<ShownSetting> shown;
  for (const ConfigKey& key : ConfigKeys()) {
    const auto origin = loaded.origins.find(std::string(key.name));
    ShownSetting setting{std::string(key.name), FormatValue(key, loaded.config), PlainValue(key, loaded.config),
                         kFromDefault, std::string(kFromDefault)};
    if (origin != loaded.origins.end()) {
      setting.source = origin->second.source;
      setting.origin = InWords(origin->second);
    }
    shown.push_back(std::move(setting));
  }
  return shown;
}

std::vector<std::string> NeedRestart(const Config& now, const Config& next) {
  std::vector<std::string> changed;
  for (const ConfigKey& key : ConfigKeys()) {
    if (key.start_only && FormatValue(key, now) != FormatValue(key, next)) changed.emplace_back(key.name);
  }
  return changed;
}

LoadedConfig KeepStartOnly(const LoadedConfig& now, LoadedConfig next) {
  next.config.paths.state = now.config.paths.state;
  next.config.paths.socket = now.config.paths.socket;
  next.config.paths.worker = now.config.paths.worker;
  next.config.access.socket_mode = now.config.access.socket_mode;
  next.config.access.group = now.config.access.group;
  for (const ConfigKey& key : ConfigKeys()) {
    if (!key.start_only) continue;
    const std::string name(key.name);
    const auto origin = now.origins.find(name);
    if (origin == now.origins.end()) {
      next.origins.erase(name);
    } else {
      next.origins[name] = origin->second;
    }
  }
  return next;
}

Surroundings Surroundings::OfThisProcess() {
  Surroundings surroundings;
  surroundings.uid = sys::GetEuid();
  for (const char* name : {"HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
                           "STATE_DIRECTORY", "RUNTIME_DIRECTORY", "CONFIGURATION_DIRECTORY"}) {
    if (const char* value = getenv(name)) surroundings.environment[name] = value;
  }
  char path[PATH_MAX];
  const ssize_t size = sys::ReadLink("/proc/self/exe", path);
  const std::string program(path, size < 0 ? 0 : static_cast<size_t>(size));
  const std::string directory = program.substr(0, program.rfind('/'));
  surroundings.worker = directory + "/bulkhead-worker";
  if (!UniqueFd(sys::Open(surroundings.worker.c_str(), O_PATH)).valid()) {
    surroundings.worker = directory.substr(0, directory.rfind('/')) + "/libexec/bulkhead/bulkhead-worker";
  }
  return surroundings;
}

}  // namespace bulkhead::daemon
