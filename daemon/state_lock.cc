#include "daemon/state_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <cerrno>

#include "base/sys.h"

namespace bulkhead::daemon {
namespace {

// What the owner wrote, or "?" in the instant before it has.
std::string OwnerOf(int fd) {
  char text[24];
  const ssize_t size = sys::Pread(fd, text, sizeof(text), 0);
  std::string digits;
  for (ssize_t i = 0; i < size && text[i] >= '0' && text[i] <= '9'; ++i) digits += text[i];
  return digits.empty() ? "?" : digits;
}

}  // namespace

absl::StatusOr<StateLock> StateLock::Acquire(const std::string& state_directory) {
  const std::string path = state_directory + "/lock";
  UniqueFd fd(sys::Open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW, 0644));
  if (!fd.valid()) return ErrnoError(-fd.get(), path);
  const int locked = sys::Flock(fd.get(), LOCK_EX | LOCK_NB);
  if (locked == -EWOULDBLOCK) {
    return Error(
        Reason::kLimitExceeded,
        fmt::format("{}: locked by bulkheadd with pid {}; one daemon per state directory", path, OwnerOf(fd.get())));
  }
  if (locked < 0) return ErrnoError(-locked, path);
  const std::string pid = fmt::format("{}\n", sys::GetPid());
  if (const int error = sys::Ftruncate(fd.get(), 0); error < 0) return ErrnoError(-error, path);
  if (const ssize_t wrote = sys::Write(fd.get(), pid.data(), pid.size()); wrote != static_cast<ssize_t>(pid.size())) {
    return ErrnoError(wrote < 0 ? static_cast<int>(-wrote) : EIO, path);
  }
  return StateLock(std::move(fd));
}

absl::Status MakeDirectories(const std::string& path, mode_t mode) {
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    const int made = sys::Mkdir(part.c_str(), mode);
    // A parent that cannot be made but is there already is no fault of ours.
    const bool last = end == std::string::npos;
    if (made < 0 && made != -EEXIST && last) return ErrnoError(-made, part);
    if (last) return absl::OkStatus();
  }
}

}  // namespace bulkhead::daemon
