// Everything the configuration is put together from, so that it can be put together again on reload. Blocking; any
// thread; a value to copy.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "daemon/config.h"

namespace bulkhead::daemon {

struct ConfigSources {
  Surroundings surroundings;
  std::string file;  // empty: the default one, which need not exist
  std::vector<Setting> flags;

  // Defaults, file, conf.d, flags; the errors of ReadConfigFile and Apply.
  [[nodiscard]] absl::StatusOr<LoadedConfig> Load() const;
};

}  // namespace bulkhead::daemon
