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
  // Put together before anything is checked: two keys that must agree may stand in two files.
  std::vector<Setting> all;
  if (!file.empty() || !IsMissing(path)) {
    ASSIGN_OR_RETURN(all, ReadConfigFile(path));
  }
  ASSIGN_OR_RETURN(const std::vector<Setting> pieces, ReadConfD(path));
  all.insert(all.end(), pieces.begin(), pieces.end());
  all.insert(all.end(), flags.begin(), flags.end());
  return Apply(std::move(loaded), all);
}

}  // namespace bulkhead::daemon
