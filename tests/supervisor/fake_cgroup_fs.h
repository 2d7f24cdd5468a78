// A cgroup v2 subtree in memory, with the kernel's rules: cgroup_rules_test.cc holds it and the kernel to the same
// ones. Knows the controllers memory, pids and cpu, and any other name as one without files that matter. Root is a
// group that was delegated, so not the root of the hierarchy.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "supervisor/cgroup_fs.h"

namespace bulkhead::supervisor::test {

class FakeCgroupFs final : public CgroupFs {
 public:
  // What the group above turned on for us.
  explicit FakeCgroupFs(std::set<std::string> controllers = {"cpu", "memory", "pids"});

  int MakeGroup(const std::string& group) override;
  int RemoveGroup(const std::string& group) override;
  int Write(const std::string& group, std::string_view file, std::string_view text) override;
  int Read(const std::string& group, std::string_view file, std::string* text) override;
  int Groups(const std::string& group, std::vector<std::string>* names) override;

  // A process begins in `group` or ends; `slow` ones do not end when they are killed, only by End.
  void Begin(pid_t pid, const std::string& group, bool slow = false);
  void End(pid_t pid);
  [[nodiscard]] bool Alive(pid_t pid) const { return processes_.contains(pid); }
  [[nodiscard]] std::string GroupOf(pid_t pid) const;
  // The process takes private memory and touches file pages. Over memory.max file pages go first, then the process is
  // killed, or its whole group with memory.oom.group.
  void Take(pid_t pid, uint64_t private_bytes, uint64_t file_bytes = 0);
  // The next write to a file of this name fails with this errno.
  void FailWrite(std::string file, int error) { fail_[std::move(file)] = error; }

 private:
  struct Group {
    std::set<std::string> subtree;
    std::map<std::string, std::string, std::less<>> values;
    uint64_t file_bytes = 0;
    uint64_t oom_kills = 0;
  };
  struct Process {
    std::string group;
    uint64_t private_bytes = 0;
    bool slow = false;
  };

  [[nodiscard]] std::set<std::string> ControllersOf(const std::string& group) const;
  [[nodiscard]] bool HasFile(const std::string& group, std::string_view file) const;
  [[nodiscard]] std::vector<pid_t> In(const std::string& group, bool below) const;
  [[nodiscard]] std::vector<std::string> Below(const std::string& group) const;
  [[nodiscard]] uint64_t Usage(const std::string& group) const;
  int WriteProcs(const std::string& group, std::string_view text);
  int WriteControl(const std::string& group, std::string_view text);
  int WriteKill(const std::string& group, std::string_view text);
  int WriteValue(const std::string& group, std::string_view file, std::string_view text);
  void Kill(pid_t pid);

  std::set<std::string> controllers_;
  std::map<std::string, Group> groups_;
  std::map<pid_t, Process> processes_;
  std::map<std::string, int, std::less<>> fail_;
};

}  // namespace bulkhead::supervisor::test
