#include "base/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include "base/sys.h"

namespace bulkhead {

absl::StatusOr<MappedFile> MappedFile::Map(int fd) {
  struct stat info = {};
  if (const int rc = sys::Fstat(fd, &info); rc < 0) return ErrnoError(-rc, "fstat of a model file");
  if (!S_ISREG(info.st_mode)) return Error(Reason::kModelInvalid, "model: not a regular file");
  if (info.st_size <= 0) return Error(Reason::kModelInvalid, "model: the file is empty");
  const auto size = static_cast<size_t>(info.st_size);
  void* data = nullptr;
  if (const int rc = sys::Mmap(&data, nullptr, size, PROT_READ, MAP_SHARED, fd, 0); rc < 0) {
    return ErrnoError(-rc, "mmap of a model file");
  }
  // Advice only: without large folios the file stays in 4 KiB pages.
  (void)sys::Madvise(data, size, MADV_HUGEPAGE);
  return MappedFile(static_cast<const std::byte*>(data), size);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) sys::Munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace bulkhead
