#include "admission/learned.h"

#include <algorithm>

namespace bulkhead::admission {

LearnedPeaks::Lesson& LearnedPeaks::At(const FileIdentity& file, Shape shape) {
  if (rows_.size() >= kMaxRows && !rows_.contains({file, shape})) {
    const auto oldest = std::min_element(rows_.begin(), rows_.end(), [](const auto& a, const auto& b) {
      return a.first.first.mtime_ns < b.first.first.mtime_ns;
    });
    rows_.erase(oldest);
  }
  return rows_[{file, shape}];
}

uint64_t LearnedPeaks::Peak(const FileIdentity& file, Shape shape) const {
  const auto found = rows_.find({file, shape});
  return found == rows_.end() ? 0 : found->second.private_bytes;
}

void LearnedPeaks::Measured(const FileIdentity& file, Shape shape, uint64_t private_bytes) {
  if (private_bytes == 0) return;
  Lesson& lesson = At(file, shape);
  lesson.private_bytes = std::max(lesson.private_bytes, private_bytes);
}

bool LearnedPeaks::RanOutOfMemory(const FileIdentity& file, Shape shape, uint64_t wanted_private_bytes) {
  Lesson& lesson = At(file, shape);
  if (lesson.oom_retries >= kMaxOomRetries) return false;
  ++lesson.oom_retries;
  lesson.private_bytes = std::max(lesson.private_bytes, AfterOom(wanted_private_bytes));
  return true;
}

void LearnedPeaks::Served(const FileIdentity& file, Shape shape) {
  const auto found = rows_.find({file, shape});
  if (found != rows_.end()) found->second.oom_retries = 0;
}

std::vector<LearnedPeaks::Row> LearnedPeaks::Export() const {
  std::vector<Row> rows;
  for (const auto& [key, lesson] : rows_) {
    rows.push_back({key.first, key.second, lesson.private_bytes, lesson.oom_retries});
  }
  return rows;
}

void LearnedPeaks::Import(std::span<const Row> rows) {
  for (const Row& row : rows) At(row.file, row.shape) = {row.private_bytes, row.oom_retries};
}

}  // namespace bulkhead::admission
