// Where a worker's memory is not what it is charged, in sentences for `ps --memory`. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "supervisor/snapshot.h"

namespace bulkhead::daemon {

std::vector<std::string> MemoryWarnings(std::span<const supervisor::ResidentModel> models);

}  // namespace bulkhead::daemon
