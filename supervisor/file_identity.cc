#include "supervisor/file_identity.h"

#include <sys/stat.h>

#include "base/sys.h"

namespace bulkhead::supervisor {

absl::StatusOr<FileIdentity> IdentityOf(int fd) {
  struct stat info = {};
  if (const int error = sys::Fstat(fd, &info); error < 0) return ErrnoError(-error, "model descriptor: fstat");
  if (!S_ISREG(info.st_mode)) return Error(Reason::kModelInvalid, "model: not a regular file");
  FileIdentity identity;
  identity.device = info.st_dev;
  identity.inode = info.st_ino;
  identity.size = static_cast<uint64_t>(info.st_size);
  identity.mtime_ns = info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec;
  return identity;
}

}  // namespace bulkhead::supervisor
