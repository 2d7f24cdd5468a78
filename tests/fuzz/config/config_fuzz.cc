// Any text as a configuration file. What it looks for beside crashes: a setting that was accepted but cannot be shown
// and read again, a refusal that does not say where, and a refused file that changed anything.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/reason.h"
#include "daemon/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace bulkhead;
  using namespace bulkhead::daemon;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto settings = ParseConfigText(text, "f.toml");
  if (!settings.ok()) {
    if (Message(settings.status()).find("f.toml") == std::string::npos) abort();
    return 0;
  }
  Surroundings surroundings;
  surroundings.environment["HOME"] = "/h";
  const LoadedConfig base = DefaultConfig(surroundings);
  const auto applied = Apply(base, *settings);
  if (!applied.ok()) {
    if (settings->empty() || ReasonOf(applied.status()) != Reason::kInvalidRequest) abort();
    return 0;
  }
  // Every value that is in force can be written down and means the same again.
  for (const ShownSetting& shown : Show(*applied)) {
    if (shown.origin == "default") continue;
    const size_t dot = shown.name.find('.');
    const std::string line = "[" + shown.name.substr(0, dot) + "]\n" + shown.name.substr(dot + 1) + " = " + shown.value;
    const auto again = ParseConfigText(line, "again.toml");
    if (!again.ok()) abort();
    // A pair of keys may be bound to each other, so each alone need not be valid; but it has its own type and range.
    const auto once_more = Apply(*applied, *again);
    if (!once_more.ok() || !(once_more->config == applied->config)) abort();
  }
  (void)NeedRestart(base.config, applied->config);
  (void)KeepStartOnly(base, *applied);
  return 0;
}
