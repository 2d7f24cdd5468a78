// What a worker must not be able to do, each tried once. `daemon` is the parent's pid, taken while it could be asked
// for.
#pragma once

#include <sys/types.h>

#include <string_view>

namespace bulkhead::worker {

// Tries and says on stderr how it went: "probe NAME: done" or "probe NAME: errno N". False for an unknown name.
bool RunProbe(std::string_view name, pid_t daemon);

}  // namespace bulkhead::worker
