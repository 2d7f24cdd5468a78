// The table of configuration keys: name, type, limits and place in Config. Parsing, checking, printing and the shipped
// file's test all walk it. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "daemon/config.h"

namespace bulkhead::daemon {

struct TextKey {
  std::string& (*field)(Config&);
  std::span<const std::string_view> choices;  // empty: any text
};
struct ListKey {
  std::vector<std::string>& (*field)(Config&);
};
struct CountKey {
  uint32_t& (*field)(Config&);
  uint32_t min;
  uint32_t max;
};
struct ModeKey {
  uint32_t& (*field)(Config&);  // octal, as text
};
struct BytesKey {
  uint64_t& (*field)(Config&);
  uint64_t min;
  uint64_t max;
};
struct DurationKey {
  Duration& (*field)(Config&);
  Duration min;
  Duration max;
};

struct ConfigKey {
  std::string_view name;
  bool start_only;  // read once, at start
  std::variant<TextKey, ListKey, CountKey, ModeKey, BytesKey, DurationKey> kind;
};

std::span<const ConfigKey> ConfigKeys();
const ConfigKey* FindConfigKey(std::string_view name);

// Sets `key` in `config` from what was written. The error names value and limit, not the place.
absl::Status Assign(const ConfigKey& key, Config& config, const Setting& setting);

// The value as it would be written in the file.
std::string FormatValue(const ConfigKey& key, const Config& config);
// The same without quotes; elements of a list separated by commas.
std::string PlainValue(const ConfigKey& key, const Config& config);

}  // namespace bulkhead::daemon
