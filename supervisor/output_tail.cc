#include "supervisor/output_tail.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/sys.h"

namespace bulkhead::supervisor {

absl::Status OutputTail::Open(uv_loop_t* loop, UniqueFd pipe) {
  return watcher_.Open(loop, std::move(pipe), [this] { ReadOnce(); });
}

void OutputTail::Drain() {
  // Bounded: somebody who inherited the pipe may go on writing for ever.
  for (int reads = 0; reads < 64 && ReadOnce(); ++reads) {
  }
}

bool OutputTail::ReadOnce() {
  if (!watcher_.open()) return false;
  char buffer[4096];
  const ssize_t got = sys::Read(watcher_.fd(), buffer, sizeof(buffer));
  if (got == -EINTR) return true;
  if (got == -EAGAIN) return false;
  if (got <= 0) {
    watcher_.Close();
    return false;
  }
  Take(buffer, static_cast<size_t>(got));
  return true;
}

void OutputTail::Take(const char* data, size_t size) {
  if (keep_ == Keep::kFirst) {
    const size_t room = limit_ - bytes_.size();
    overflowed_ = overflowed_ || size > room;
    bytes_.append(data, std::min(size, room));
    return;
  }
  bytes_.append(data, size);
  if (bytes_.size() <= limit_) return;
  overflowed_ = true;
  bytes_.erase(0, bytes_.size() - limit_);
}

}  // namespace bulkhead::supervisor
