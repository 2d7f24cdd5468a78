#include "daemon/config_sources.h"

#include <fcntl.h>

#include <cerrno>

#include "base/fd.h"
#include "base/sys.h"

namespace bulkhead::daemon {
namespace {

bool IsMissing(const std::string& path) { return UniqueFd(sys::Open(path.c_str(), O_PATH)).get() == -ENOENT; }

}  // namespace

absl::StatusOr<LoadedConfig> ConfigSources::Load() const {
  LoadedConfig loaded = DefaultConfig(surroundings);
  const std::string path = file.empty() ? DefaultConfigPath(surroundings) : file;
  if (!file.empty() || !IsMissing(path)) {
    ASSIGN_OR_RETURN(const std::vector<Setting> settings, ReadConfigFile(path));
    ASSIGN_OR_RETURN(loaded, Apply(std::move(loaded), settings));
  }
  return Apply(std::move(loaded), flags);
}

}  // namespace bulkhead::daemon
