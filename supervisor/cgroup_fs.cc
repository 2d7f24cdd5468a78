#include "supervisor/cgroup_fs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/fd.h"
#include "base/sys.h"

namespace bulkhead::supervisor {
namespace {

// memory.stat is the longest file read here, at some 2 KiB.
constexpr size_t kMaxFileBytes = 16 << 10;

class KernelCgroupFs final : public CgroupFs {
 public:
  explicit KernelCgroupFs(std::string directory) : directory_(std::move(directory)) {}

  int MakeGroup(const std::string& group) override { return sys::Mkdir(Path(group).c_str(), 0755); }
  int RemoveGroup(const std::string& group) override { return sys::Rmdir(Path(group).c_str()); }

  int Write(const std::string& group, std::string_view file, std::string_view text) override {
    const int fd = sys::Open(Path(group, file).c_str(), O_WRONLY);
    if (fd < 0) return fd;
    const UniqueFd owner(fd);
    ssize_t written = 0;
    do {
      written = sys::Write(fd, text.data(), text.size());
    } while (written == -EINTR);
    return written < 0 ? static_cast<int>(written) : 0;
  }

  int Read(const std::string& group, std::string_view file, std::string* text) override {
    text->resize(kMaxFileBytes);
    const ssize_t got = sys::ReadSmallFile(AT_FDCWD, Path(group, file).c_str(), *text);
    text->resize(got > 0 ? static_cast<size_t>(got) : 0);
    return got < 0 ? static_cast<int>(got) : 0;
  }

  int Groups(const std::string& group, std::vector<std::string>* names) override {
    const int fd = sys::Open(Path(group).c_str(), O_RDONLY | O_DIRECTORY);
    if (fd < 0) return fd;
    const UniqueFd owner(fd);
    std::vector<std::string> all;
    if (const int error = sys::ListDirectory(fd, &all); error < 0) return error;
    for (std::string& name : all) {
      struct stat info = {};
      if (sys::Lstat(Path(group, name).c_str(), &info) == 0 && S_ISDIR(info.st_mode)) names->push_back(std::move(name));
    }
    std::sort(names->begin(), names->end());
    return 0;
  }

 private:
  [[nodiscard]] std::string Path(const std::string& group) const {
    return group.empty() ? directory_ : fmt::format("{}/{}", directory_, group);
  }
  [[nodiscard]] std::string Path(const std::string& group, std::string_view file) const {
    return fmt::format("{}/{}", Path(group), file);
  }

  std::string directory_;
};

}  // namespace

std::unique_ptr<CgroupFs> MakeKernelCgroupFs(std::string directory) {
  return std::make_unique<KernelCgroupFs>(std::move(directory));
}

}  // namespace bulkhead::supervisor
