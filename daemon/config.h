// The daemon's configuration: one plain struct, and how it is put together from defaults, systemd's directories, a TOML
// file and the pieces beside it, flags and what administrators set at run time. Values only; nothing here acts. Loop
// thread, or any thread for the pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace bulkhead::daemon {

struct Config {
  struct Paths {
    std::vector<std::string> models;
    std::string state;
    std::string socket;
    std::string worker;
    bool operator==(const Paths&) const = default;
  } paths;
  struct Access {
    uint32_t socket_mode = 0660;
    std::string group;        // owner group of the socket; empty: the daemon's own
    std::string admin_group;  // members may release, terminate and set policy for others; empty: nobody but root
    bool operator==(const Access&) const = default;
  } access;
  struct Budget {
    std::string profile = "everyday";
    uint64_t bytes = 0;  // of profile "custom"
    bool operator==(const Budget&) const = default;
  } budget;
  struct Residency {
    Duration idle_release = std::chrono::minutes(10);  // 0 = never
    std::vector<std::string> pin;
    std::vector<std::string> preload;
    bool operator==(const Residency&) const = default;
  } residency;
  struct Queue {
    uint32_t per_model = 64;
    uint32_t total = 256;
    Duration wait = std::chrono::minutes(2);
    Duration ageing = std::chrono::seconds(15);  // raises who waits by one priority; 0 = never
    bool operator==(const Queue&) const = default;
  } queue;
  struct Deadlines {
    Duration drain = std::chrono::seconds(10);   // of a busy model that is released, and of the daemon's stop
    Duration cancel = std::chrono::seconds(2);   // from cancel to SIGTERM
    Duration term = std::chrono::seconds(1);     // from SIGTERM to SIGKILL
    Duration confirm = std::chrono::seconds(5);  // from SIGKILL until "unconfirmed" is answered
    Duration client_stall = std::chrono::seconds(60);
    bool operator==(const Deadlines&) const = default;
  } deadlines;
  struct Watchdog {
    Duration load = std::chrono::seconds(120);
    Duration prefill = std::chrono::seconds(60);
    Duration token = std::chrono::seconds(30);
    bool operator==(const Watchdog&) const = default;
  } watchdog;
  struct Breaker {
    uint32_t deaths = 3;
    Duration window = std::chrono::minutes(5);
    Duration backoff = std::chrono::seconds(10);
    Duration max_backoff = std::chrono::minutes(10);
    Duration healthy = std::chrono::seconds(30);
    bool operator==(const Breaker&) const = default;
  } breaker;
  struct Limits {
    uint32_t connections = 16384;  // over all uids
    uint32_t connections_per_uid = 12000;
    uint32_t in_flight_per_uid = 256;
    uint64_t request_bytes = 16ull << 20;           // one frame
    uint64_t received_bytes_per_uid = 64ull << 20;  // of unfinished frames and waiting requests
    uint64_t queued_bytes_per_uid = 64ull << 20;    // that wait to be read, over all of a user's connections
    Duration linger = std::chrono::minutes(10);
    Duration idempotency = std::chrono::minutes(1);  // a generation with an idempotency_key lingers at least so long
    bool operator==(const Limits&) const = default;
  } limits;
  struct Model {
    uint32_t context = 8192;
    uint32_t sequences = 4;
    std::string kv_type = "f16";
    uint32_t threads = 0;  // 0 = all that affinity and quota allow
    bool operator==(const Model&) const = default;
  } model;
  struct Log {
    std::string level = "info";
    bool operator==(const Log&) const = default;
  } log;
  bool operator==(const Config&) const = default;
};

// The kinds of places a value may come from, in the order in which later ones win.
inline constexpr std::string_view kFromDefault = "default";
inline constexpr std::string_view kFromEnvironment = "environment";
inline constexpr std::string_view kFromFile = "file";
inline constexpr std::string_view kFromConfD = "conf.d";
inline constexpr std::string_view kFromFlag = "flag";
inline constexpr std::string_view kFromRuntime = "runtime";

// One value given for one key, and where it was given.
struct Setting {
  std::string name;                 // "section.key"
  std::vector<std::string> values;  // one, or the elements of a list
  bool list = false;
  std::string origin;  // the place: "/etc/…toml:12", "--socket", "uid 0"
  std::string_view source = kFromFile;
};

struct LoadedConfig {
  struct Origin {
    std::string_view source;  // one of kFrom…
    std::string place;
  };
  Config config;
  std::map<std::string, Origin> origins;  // by key; a key not in it has its default
};

// What decides the default paths.
struct Surroundings {
  uint32_t uid = 0;
  std::map<std::string, std::string> environment;
  std::string worker;  // beside bulkheadd (a build tree) or in ../libexec/bulkhead (installed)
  static Surroundings OfThisProcess();
};

// Defaults: root (or a system service) lives in /var/lib and /run, a user in $XDG_STATE_HOME and $XDG_RUNTIME_DIR;
// systemd's RUNTIME_DIRECTORY and STATE_DIRECTORY win over both.
LoadedConfig DefaultConfig(const Surroundings& surroundings);
// The file read where no --config is given; it need not exist.
std::string DefaultConfigPath(const Surroundings& surroundings);

// `settings` applied in order on `base`. Errors (kInvalidRequest) name origin, key, value and limit; `base` is
// unharmed.
absl::StatusOr<LoadedConfig> Apply(LoadedConfig base, const std::vector<Setting>& settings);

// Settings of the TOML file at `path`. Unknown keys, wrong types and syntax errors name file and line.
absl::StatusOr<std::vector<Setting>> ReadConfigFile(const std::string& path);
// Settings of the *.toml in the directory "conf.d" beside `file`, in byte order of their names; hidden ones are left
// out, and the directory need not exist.
absl::StatusOr<std::vector<Setting>> ReadConfD(const std::string& file);
absl::StatusOr<std::vector<Setting>> ParseConfigText(std::string_view text, const std::string& file_name);

struct ShownSetting {
  std::string name;
  std::string value;  // as the file would have it
  std::string text;   // as people and `policy set` write it: unquoted, lists with commas
  std::string_view source;
  std::string origin;  // source and place in words
};
// Every key with its value and where that came from, in the order of the shipped file.
std::vector<ShownSetting> Show(const LoadedConfig& loaded);

// Keys that `next` changes but that are read at start only.
std::vector<std::string> NeedRestart(const Config& now, const Config& next);

// `next` with the keys read at start only as `now` has them.
LoadedConfig KeepStartOnly(const LoadedConfig& now, LoadedConfig next);

}  // namespace bulkhead::daemon
