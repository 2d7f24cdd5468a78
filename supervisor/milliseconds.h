// The unit of every duration that leaves the supervisor.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace bulkhead::supervisor {

// Whole milliseconds, rounded towards zero.
constexpr int64_t Milliseconds(Duration duration) { return duration / std::chrono::milliseconds(1); }

}  // namespace bulkhead::supervisor
