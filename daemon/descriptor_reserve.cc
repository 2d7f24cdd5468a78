#include "daemon/descriptor_reserve.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include "base/sys.h"

namespace bulkhead::daemon {

DescriptorReserve DescriptorReserve::Raise() {
  rlimit limit = {};
  if (sys::Prlimit(0, RLIMIT_NOFILE, nullptr, &limit) < 0) return {};
  limit.rlim_cur = limit.rlim_max;
  (void)sys::Prlimit(0, RLIMIT_NOFILE, &limit, nullptr);
  if (sys::Prlimit(0, RLIMIT_NOFILE, nullptr, &limit) < 0) return {};
  return DescriptorReserve(limit.rlim_cur);
}

absl::Status DescriptorReserve::Check(int fd, uint64_t spared) const {
  if (fd < 0 || static_cast<uint64_t>(fd) < limit_ - spared) return absl::OkStatus();
  return Error(Reason::kLimitExceeded, fmt::format("descriptors: {} of the process's {} are in use, {} are kept for "
                                                   "workers and requests that are there already",
                                                   fd, limit_, spared));
}

}  // namespace bulkhead::daemon
