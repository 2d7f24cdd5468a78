// Where this process stands among the control groups, and the limits that follow from it. cgroup v1 and v2, also mixed
// ("hybrid"), also inside a container that sees its own group as "/". Pure parsing over the texts of /proc, and readers
// that nothing here waits for. Any thread. See cgroups(7), Documentation/admin-guide/cgroup-v2.rst.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "admission/cpu_grants.h"

namespace bulkhead::supervisor {

// The directory of a group is `mount + group`; `mount` alone is the topmost one to be seen from here.
struct CgroupPlace {
  std::string mount;
  std::string group;  // "" for the topmost, else "/a/b"
  bool v2 = false;
  [[nodiscard]] std::string directory() const { return mount + group; }
};

// Our group of the hierarchy that has `controller` (v1), or of v2 where `controller` is empty. `mounts` is the text of
// /proc/self/mountinfo, `groups` of /proc/self/cgroup.
std::optional<CgroupPlace> FindCgroup(std::string_view controller, std::string_view mounts, std::string_view groups);
// The same of this process, now.
std::optional<CgroupPlace> OwnCgroup(std::string_view controller);

// The tightest memory limit, in bytes, of our group and its ancestors; nullopt where there is none.
std::optional<uint64_t> OwnMemoryLimit();
// The tightest CPU quota likewise.
std::optional<admission::CpuQuota> OwnCpuQuota();

// A whole small file; empty where it cannot be read.
std::string ReadTextFile(const std::string& path, size_t limit);
// The number behind `key` at the start of a line of "key value" text.
std::optional<uint64_t> NumberAfter(std::string_view text, std::string_view key);
// The decimal number at the start of `text`, blanks skipped.
std::optional<uint64_t> ParseNumber(std::string_view text);

}  // namespace bulkhead::supervisor
