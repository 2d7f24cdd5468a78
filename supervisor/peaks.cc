#include "supervisor/peaks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace bulkhead::supervisor {
namespace {

constexpr size_t kFields = 8;

// The numbers of one line; false unless there are exactly kFields.
bool ParseLine(std::string_view line, std::array<int64_t, kFields>* fields) {
  for (size_t i = 0; i < kFields; ++i) {
    const auto result = std::from_chars(line.data(), line.data() + line.size(), (*fields)[i]);
    if (result.ec != std::errc()) return false;
    line.remove_prefix(static_cast<size_t>(result.ptr - line.data()));
    if (i + 1 == kFields) return line.empty();
    if (line.empty() || line.front() != ' ') return false;
    line.remove_prefix(1);
  }
  return false;
}

}  // namespace

std::string FormatPeaks(std::span<const admission::LearnedPeaks::Row> rows) {
  std::string text;
  for (const auto& row : rows) {
    text +=
        fmt::format("{} {} {} {} {} {} {} {}\n", static_cast<int64_t>(row.file.device),
                    static_cast<int64_t>(row.file.inode), static_cast<int64_t>(row.file.size), row.file.mtime_ns,
                    row.shape.context, row.shape.sequences, static_cast<int64_t>(row.private_bytes), row.oom_retries);
  }
  return text;
}

absl::StatusOr<std::vector<admission::LearnedPeaks::Row>> ParsePeaks(std::string_view text) {
  std::vector<admission::LearnedPeaks::Row> rows;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::array<int64_t, kFields> fields = {};
    if (!ParseLine(text.substr(0, end), &fields)) {
      return Error(Reason::kInternal, fmt::format("line {}: not {} numbers", number, kFields));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
    admission::LearnedPeaks::Row row;
    row.file.device = static_cast<uint64_t>(fields[0]);
    row.file.inode = static_cast<uint64_t>(fields[1]);
    row.file.size = static_cast<uint64_t>(fields[2]);
    row.file.mtime_ns = fields[3];
    row.shape = {static_cast<uint32_t>(fields[4]), static_cast<uint32_t>(fields[5])};
    row.private_bytes = static_cast<uint64_t>(fields[6]);
    row.oom_retries = static_cast<uint32_t>(fields[7]);
    rows.push_back(row);
  }
  return rows;
}

}  // namespace bulkhead::supervisor
