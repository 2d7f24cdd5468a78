// What workers turned out to need, so that an estimate is corrected by measurement: the worst private bytes seen per
// (file, shape), and what a worker that ran out of memory would have wanted. Kept over restarts by the supervisor,
// which stores Export() and gives it back to Import(). Not thread-safe. Bytes.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "admission/estimate.h"

namespace bulkhead::admission {

class LearnedPeaks {
 public:
  struct Row {
    FileIdentity file;
    Shape shape;
    uint64_t private_bytes = 0;
    uint32_t oom_retries = 0;
  };

  // 0 where nothing was learned.
  [[nodiscard]] uint64_t Peak(const FileIdentity& file, Shape shape) const;
  void Measured(const FileIdentity& file, Shape shape, uint64_t private_bytes);

  // The next estimate becomes wanted + 1/8. False once that was done kMaxOomRetries times since a worker of the shape
  // last served without running out: a load is then to be refused.
  [[nodiscard]] bool RanOutOfMemory(const FileIdentity& file, Shape shape, uint64_t wanted_private_bytes);
  // A worker of this shape was ready and ended otherwise: the retries are granted anew.
  void Served(const FileIdentity& file, Shape shape);

  [[nodiscard]] std::vector<Row> Export() const;
  void Import(std::span<const Row> rows);

 private:
  struct Lesson {
    uint64_t private_bytes = 0;
    uint32_t oom_retries = 0;
  };
  using Key = std::pair<FileIdentity, Shape>;
  // At most kMaxRows: the oldest file's rows are of files long gone, and an estimate still stands without them.
  static constexpr size_t kMaxRows = 1024;
  Lesson& At(const FileIdentity& file, Shape shape);

  std::map<Key, Lesson> rows_;
};

}  // namespace bulkhead::admission
