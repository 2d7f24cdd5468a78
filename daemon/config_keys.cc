#include "daemon/config_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <limits>

#include "daemon/units.h"

namespace bulkhead::daemon {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::array<std::string_view, 3> kProfiles = {"everyday", "local_focused", "custom"};
constexpr std::array<std::string_view, 2> kKvTypes = {"f16", "f32"};
constexpr std::array<std::string_view, 5> kLevels = {"debug", "info", "warning", "error", "off"};
constexpr uint64_t kMaxBytes = std::numeric_limits<int64_t>::max();
constexpr uint64_t kMiB = 1ull << 20;

#define FIELD(section, key) \
  [](Config & c) -> auto& { return c.section.key; }

const std::array kKeys = {
    ConfigKey{"paths.models", false, ListKey{FIELD(paths, models)}},
    ConfigKey{"paths.state", true, TextKey{FIELD(paths, state), {}}},
    ConfigKey{"paths.socket", true, TextKey{FIELD(paths, socket), {}}},
    ConfigKey{"paths.worker", true, TextKey{FIELD(paths, worker), {}}},
    ConfigKey{"access.socket_mode", true, ModeKey{FIELD(access, socket_mode)}},
    ConfigKey{"access.group", true, TextKey{FIELD(access, group), {}}},
    ConfigKey{"access.admin_group", false, TextKey{FIELD(access, admin_group), {}}},
    ConfigKey{"budget.profile", false, TextKey{FIELD(budget, profile), kProfiles}},
    ConfigKey{"budget.bytes", false, BytesKey{FIELD(budget, bytes), 0, kMaxBytes}},
    ConfigKey{"residency.idle_release", false,
              DurationKey{FIELD(residency, idle_release), seconds(0), hours(24 * 365)}},
    ConfigKey{"residency.pin", false, ListKey{FIELD(residency, pin)}},
    ConfigKey{"residency.preload", false, ListKey{FIELD(residency, preload)}},
    ConfigKey{"queue.per_model", false, CountKey{FIELD(queue, per_model), 1, 100'000}},
    ConfigKey{"queue.total", false, CountKey{FIELD(queue, total), 1, 100'000}},
    ConfigKey{"queue.ageing", false, DurationKey{FIELD(queue, ageing), seconds(0), hours(24)}},
    ConfigKey{"queue.wait", false, DurationKey{FIELD(queue, wait), milliseconds(1), hours(24)}},
    ConfigKey{"deadlines.drain", false, DurationKey{FIELD(deadlines, drain), seconds(0), hours(1)}},
    ConfigKey{"deadlines.cancel", false, DurationKey{FIELD(deadlines, cancel), milliseconds(100), hours(1)}},
    ConfigKey{"deadlines.term", false, DurationKey{FIELD(deadlines, term), milliseconds(1), hours(1)}},
    ConfigKey{"deadlines.confirm", false, DurationKey{FIELD(deadlines, confirm), milliseconds(100), hours(1)}},
    ConfigKey{"deadlines.client_stall", false,
              DurationKey{FIELD(deadlines, client_stall), milliseconds(100), hours(24)}},
    ConfigKey{"watchdog.load", false, DurationKey{FIELD(watchdog, load), milliseconds(100), hours(24)}},
    ConfigKey{"watchdog.prefill", false, DurationKey{FIELD(watchdog, prefill), milliseconds(100), hours(24)}},
    ConfigKey{"watchdog.token", false, DurationKey{FIELD(watchdog, token), milliseconds(100), hours(24)}},
    ConfigKey{"breaker.deaths", false, CountKey{FIELD(breaker, deaths), 1, 1000}},
    ConfigKey{"breaker.window", false, DurationKey{FIELD(breaker, window), seconds(1), hours(24)}},
    ConfigKey{"breaker.backoff", false, DurationKey{FIELD(breaker, backoff), milliseconds(1), hours(24)}},
    ConfigKey{"breaker.max_backoff", false, DurationKey{FIELD(breaker, max_backoff), milliseconds(1), hours(24)}},
    ConfigKey{"breaker.healthy", false, DurationKey{FIELD(breaker, healthy), milliseconds(1), hours(24)}},
    ConfigKey{"limits.connections", false, CountKey{FIELD(limits, connections), 1, 60'000}},
    ConfigKey{"limits.connections_per_uid", false, CountKey{FIELD(limits, connections_per_uid), 1, 60'000}},
    ConfigKey{"limits.in_flight_per_uid", false, CountKey{FIELD(limits, in_flight_per_uid), 1, 60'000}},
    ConfigKey{"limits.request_bytes", false, BytesKey{FIELD(limits, request_bytes), 64 << 10, 64 * kMiB}},
    ConfigKey{"limits.received_bytes_per_uid", false,
              BytesKey{FIELD(limits, received_bytes_per_uid), kMiB, 1024 * kMiB}},
    ConfigKey{"limits.queued_bytes_per_uid", false, BytesKey{FIELD(limits, queued_bytes_per_uid), kMiB, 1024 * kMiB}},
    ConfigKey{"limits.idempotency", false, DurationKey{FIELD(limits, idempotency), seconds(1), hours(24)}},
    ConfigKey{"limits.linger", false, DurationKey{FIELD(limits, linger), seconds(0), hours(24)}},
    ConfigKey{"model.context", false, CountKey{FIELD(model, context), 16, 1u << 24}},
    ConfigKey{"model.sequences", false, CountKey{FIELD(model, sequences), 1, 128}},
    ConfigKey{"model.kv_type", false, TextKey{FIELD(model, kv_type), kKvTypes}},
    ConfigKey{"model.threads", false, CountKey{FIELD(model, threads), 0, 1024}},
    ConfigKey{"log.level", false, TextKey{FIELD(log, level), kLevels}},
};

#undef FIELD

absl::Status BadValue(std::string message) { return Error(Reason::kInvalidRequest, message); }

absl::StatusOr<std::string> Single(const Setting& setting) {
  if (setting.list || setting.values.size() != 1) return BadValue("takes one value, not a list");
  return setting.values.front();
}

absl::Status AssignTo(const TextKey& key, Config& config, const Setting& setting) {
  ASSIGN_OR_RETURN(const std::string text, Single(setting));
  if (text.find('\0') != std::string::npos) return BadValue("holds a zero byte");
  if (!key.choices.empty() && std::find(key.choices.begin(), key.choices.end(), text) == key.choices.end()) {
    return BadValue(fmt::format("'{}' is none of {}", text, fmt::join(key.choices, ", ")));
  }
  key.field(config) = text;
  return absl::OkStatus();
}

absl::Status AssignTo(const ListKey& key, Config& config, const Setting& setting) {
  for (const std::string& value : setting.values) {
    if (value.empty() || value.find('\0') != std::string::npos) return BadValue("holds an empty element");
  }
  key.field(config) = setting.values;
  return absl::OkStatus();
}

absl::Status AssignTo(const CountKey& key, Config& config, const Setting& setting) {
  ASSIGN_OR_RETURN(const std::string text, Single(setting));
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < key.min || number > key.max) {
    return BadValue(fmt::format("'{}' is not a whole number from {} to {}", text, key.min, key.max));
  }
  key.field(config) = static_cast<uint32_t>(number);
  return absl::OkStatus();
}

absl::Status AssignTo(const ModeKey& key, Config& config, const Setting& setting) {
  ASSIGN_OR_RETURN(const std::string text, Single(setting));
  uint32_t mode = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mode, 8);
  if (error != std::errc() || end != text.data() + text.size() || mode > 0777) {
    return BadValue(fmt::format("'{}' is not an octal mode from \"0000\" to \"0777\"", text));
  }
  key.field(config) = mode;
  return absl::OkStatus();
}

absl::Status AssignTo(const BytesKey& key, Config& config, const Setting& setting) {
  ASSIGN_OR_RETURN(const std::string text, Single(setting));
  ASSIGN_OR_RETURN(const uint64_t bytes, ParseBytes(text));
  if (bytes < key.min || bytes > key.max) {
    return BadValue(fmt::format("{} bytes is outside {} to {}", bytes, key.min, key.max));
  }
  key.field(config) = bytes;
  return absl::OkStatus();
}

absl::Status AssignTo(const DurationKey& key, Config& config, const Setting& setting) {
  ASSIGN_OR_RETURN(const std::string text, Single(setting));
  ASSIGN_OR_RETURN(const Duration value, ParseDuration(text));
  if (value < key.min || value > key.max) {
    return BadValue(fmt::format("'{}' is outside {} to {}", text, FormatDuration(key.min), FormatDuration(key.max)));
  }
  key.field(config) = value;
  return absl::OkStatus();
}

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    // TOML allows no control character as it is.
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\u{:04X}", c);
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string Plain(const TextKey& key, Config& config) { return key.field(config); }
std::string Plain(const ListKey& key, Config& config) { return fmt::format("{}", fmt::join(key.field(config), ",")); }
std::string Plain(const CountKey& key, Config& config) { return fmt::format("{}", key.field(config)); }
std::string Plain(const ModeKey& key, Config& config) { return fmt::format("{:04o}", key.field(config)); }
std::string Plain(const BytesKey& key, Config& config) { return FormatBytes(key.field(config)); }
std::string Plain(const DurationKey& key, Config& config) { return FormatDuration(key.field(config)); }

std::string Format(const CountKey& key, Config& config) { return Plain(key, config); }
std::string Format(const ListKey& key, Config& config) {
  std::vector<std::string> quoted;
  for (const std::string& value : key.field(config)) quoted.push_back(Quoted(value));
  return fmt::format("[{}]", fmt::join(quoted, ", "));
}
template <typename Key>
std::string Format(const Key& key, Config& config) {
  return Quoted(Plain(key, config));
}

}  // namespace

std::span<const ConfigKey> ConfigKeys() { return kKeys; }

const ConfigKey* FindConfigKey(std::string_view name) {
  for (const ConfigKey& key : kKeys) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

absl::Status Assign(const ConfigKey& key, Config& config, const Setting& setting) {
  return std::visit([&](const auto& kind) { return AssignTo(kind, config, setting); }, key.kind);
}

std::string FormatValue(const ConfigKey& key, const Config& config) {
  // The table's accessors serve reading and writing; a copy keeps the caller's const.
  Config copy = config;
  return std::visit([&](const auto& kind) { return Format(kind, copy); }, key.kind);
}

std::string PlainValue(const ConfigKey& key, const Config& config) {
  Config copy = config;
  return std::visit([&](const auto& kind) { return Plain(kind, copy); }, key.kind);
}

}  // namespace bulkhead::daemon
