#include "worker/group_priority.h"

#include <fcntl.h>

#include <cerrno>
#include <charconv>
#include <string>
#include <string_view>

#include "base/sys.h"

namespace bulkhead::worker {
namespace {

// Beyond the tenth of a second for which the kernel refuses another change.
constexpr Duration kTryAgain = std::chrono::milliseconds(110);

// Field 6 of /proc/PID/stat (proc(5)); the name before it may hold anything, so it is skipped from behind.
bool LeadsASession() {
  char buffer[1024];
  const ssize_t size = sys::ReadSmallFile(AT_FDCWD, "/proc/self/stat", buffer);
  if (size <= 0) return false;
  std::string_view text(buffer, static_cast<size_t>(size));
  const size_t name_end = text.rfind(')');
  if (name_end == std::string_view::npos) return false;
  text.remove_prefix(name_end);
  for (int field = 0; field < 4; ++field) {
    const size_t blank = text.find(' ');
    if (blank == std::string_view::npos) return false;
    text.remove_prefix(blank + 1);
  }
  pid_t session = 0;
  std::from_chars(text.data(), text.data() + text.size(), session);
  return session == sys::GetPid();
}

}  // namespace

GroupPriority GroupPriority::OfThisProcess() {
  GroupPriority priority;
  if (LeadsASession()) priority.file_ = UniqueFd(sys::Open("/proc/self/autogroup", O_WRONLY));
  return priority;
}

Duration GroupPriority::OnTurn(Duration now) {
  if (!file_.valid() || wanted_ == reached_) return Duration::max();
  if (now < next_try_) return next_try_;
  const std::string text = std::to_string(wanted_);
  const ssize_t wrote = sys::Write(file_.get(), text.data(), text.size());
  if (wrote == -EAGAIN || wrote == -EINTR) {
    next_try_ = now + kTryAgain;
    return next_try_;
  }
  // Refused for good: it would be refused the next time too.
  reached_ = wanted_;
  return Duration::max();
}

}  // namespace bulkhead::worker
