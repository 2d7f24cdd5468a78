// The cgroup v2 file system below one directory, as thin as it can be, so that tests can put a fake in its place that
// enforces the kernel's rules. Groups are named relative to that directory: "" is the directory itself, "daemon" a
// group in it. Every call returns 0 or a negative errno, as the kernel gave it. Loop thread only; a call takes
// microseconds.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace bulkhead::supervisor {

class CgroupFs {
 public:
  virtual ~CgroupFs() = default;

  virtual int MakeGroup(const std::string& group) = 0;
  // -EBUSY while a process or a group is in it.
  virtual int RemoveGroup(const std::string& group) = 0;
  // One write of the whole text, which is what the kernel takes for one command.
  virtual int Write(const std::string& group, std::string_view file, std::string_view text) = 0;
  virtual int Read(const std::string& group, std::string_view file, std::string* text) = 0;
  // Names of the groups right below `group`.
  virtual int Groups(const std::string& group, std::vector<std::string>* names) = 0;
};

std::unique_ptr<CgroupFs> MakeKernelCgroupFs(std::string directory);

}  // namespace bulkhead::supervisor
