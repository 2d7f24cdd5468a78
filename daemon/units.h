// Durations and sizes as people write them in the configuration and in flags: "90s", "10m", "16 MiB". Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"

namespace bulkhead::daemon {

// A whole number and one unit: ms, s, m, h, d. "0" needs none. Errors name the text; overflow is an error.
absl::StatusOr<Duration> ParseDuration(std::string_view text);
// The shortest form that ParseDuration reads back to the same value, to the millisecond.
std::string FormatDuration(Duration value);

// A whole number and an optional unit: B, KiB, MiB, GiB, TiB, a blank allowed between. Errors name the text.
absl::StatusOr<uint64_t> ParseBytes(std::string_view text);
std::string FormatBytes(uint64_t value);
// For sentences, where a round figure says enough: whole mebibytes, rounded down.
std::string Mebibytes(uint64_t bytes);

}  // namespace bulkhead::daemon
