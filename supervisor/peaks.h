// How learned memory peaks are written to the state directory: a line each, numbers only. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "admission/learned.h"
#include "base/status.h"

namespace bulkhead::supervisor {

std::string FormatPeaks(std::span<const admission::LearnedPeaks::Row> rows);
// kInternal naming the first line that makes no sense.
absl::StatusOr<std::vector<admission::LearnedPeaks::Row>> ParsePeaks(std::string_view text);

}  // namespace bulkhead::supervisor
