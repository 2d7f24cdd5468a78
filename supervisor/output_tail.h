// What a worker wrote to a pipe: the last bytes of its stderr, or the first of its stdout. Loop thread only; reads
// never wait and never keep more than the limit. The bytes are not trusted.
#pragma once

#include <cstddef>
#include <string>

#include "base/fd.h"
#include "supervisor/fd_watcher.h"

namespace bulkhead::supervisor {

inline constexpr size_t kStderrTailBytes = 16 << 10;

class OutputTail {
 public:
  enum class Keep { kFirst, kLast };
  OutputTail(Keep keep, size_t limit) : keep_(keep), limit_(limit) {}

  absl::Status Open(uv_loop_t* loop, UniqueFd pipe);
  // Reads what is there now, as when the process was seen to end; at most `limit` bytes and a bit.
  void Drain();
  [[nodiscard]] const std::string& bytes() const { return bytes_; }
  // More was written than is kept.
  [[nodiscard]] bool overflowed() const { return overflowed_; }

 private:
  // True while there may be more.
  bool ReadOnce();
  void Take(const char* data, size_t size);

  Keep keep_;
  size_t limit_;
  std::string bytes_;
  bool overflowed_ = false;
  FdWatcher watcher_;
};

}  // namespace bulkhead::supervisor
