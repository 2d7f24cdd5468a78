#include "base/fd.h"

#include "base/sys.h"

namespace bulkhead {

void UniqueFd::Reset(int fd) {
  if (fd_ >= 0) sys::Close(fd_);
  fd_ = fd;
}

}  // namespace bulkhead
