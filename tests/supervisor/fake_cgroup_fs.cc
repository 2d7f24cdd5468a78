#include "tests/supervisor/fake_cgroup_fs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>

namespace bulkhead::supervisor::test {
namespace {

std::string ParentOf(const std::string& group) {
  const size_t slash = group.rfind('/');
  return slash == std::string::npos ? "" : group.substr(0, slash);
}

std::optional<uint64_t> Number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

constexpr std::string_view kWithoutController[] = {"cgroup.controllers", "cgroup.subtree_control", "cgroup.procs",
                                                   "cgroup.kill"};
constexpr std::string_view kMemoryFiles[] = {"memory.max",       "memory.high", "memory.swap.max",
                                             "memory.oom.group", "memory.stat", "memory.events"};

template <typename Names>
bool Contains(const Names& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

FakeCgroupFs::FakeCgroupFs(std::set<std::string> controllers) : controllers_(std::move(controllers)) { groups_[""]; }

int FakeCgroupFs::MakeGroup(const std::string& group) {
  if (groups_.contains(group)) return -EEXIST;
  if (!groups_.contains(ParentOf(group))) return -ENOENT;
  groups_[group];
  return 0;
}

int FakeCgroupFs::RemoveGroup(const std::string& group) {
  if (!groups_.contains(group)) return -ENOENT;
  if (!In(group, true).empty() || !Below(group).empty()) return -EBUSY;
  groups_.erase(group);
  return 0;
}

int FakeCgroupFs::Write(const std::string& group, std::string_view file, std::string_view text) {
  if (!groups_.contains(group) || !HasFile(group, file)) return -ENOENT;
  if (const auto fault = fail_.find(file); fault != fail_.end()) {
    const int error = fault->second;
    fail_.erase(fault);
    return -error;
  }
  if (file == "cgroup.procs") return WriteProcs(group, text);
  if (file == "cgroup.subtree_control") return WriteControl(group, text);
  if (file == "cgroup.kill") return WriteKill(group, text);
  return WriteValue(group, file, text);
}

int FakeCgroupFs::Read(const std::string& group, std::string_view file, std::string* text) {
  text->clear();
  if (!groups_.contains(group) || !HasFile(group, file)) return -ENOENT;
  const Group& state = groups_[group];
  if (file == "cgroup.controllers") {
    *text = fmt::format("{}\n", fmt::join(ControllersOf(group), " "));
  } else if (file == "cgroup.subtree_control") {
    *text = fmt::format("{}\n", fmt::join(state.subtree, " "));
  } else if (file == "cgroup.procs") {
    for (const pid_t pid : In(group, false)) *text += fmt::format("{}\n", pid);
  } else if (file == "memory.stat") {
    *text = fmt::format("anon {}\nfile {}\nkernel 4096\nshmem 0\n", Usage(group) - state.file_bytes, state.file_bytes);
  } else if (file == "memory.events") {
    *text = fmt::format("low 0\nhigh 0\nmax {0}\noom {0}\noom_kill {0}\noom_group_kill 0\n", state.oom_kills);
  } else {
    const auto found = state.values.find(file);
    *text = found == state.values.end() ? "max\n" : found->second + "\n";
  }
  return 0;
}

int FakeCgroupFs::Groups(const std::string& group, std::vector<std::string>* names) {
  if (!groups_.contains(group)) return -ENOENT;
  for (const std::string& below : Below(group)) {
    if (ParentOf(below) == group) names->push_back(group.empty() ? below : below.substr(group.size() + 1));
  }
  return 0;
}

void FakeCgroupFs::Begin(pid_t pid, const std::string& group, bool slow) { processes_[pid] = {group, 0, slow}; }

void FakeCgroupFs::End(pid_t pid) { processes_.erase(pid); }

std::string FakeCgroupFs::GroupOf(pid_t pid) const { return processes_.at(pid).group; }

void FakeCgroupFs::Take(pid_t pid, uint64_t private_bytes, uint64_t file_bytes) {
  Process& process = processes_.at(pid);
  const std::string name = process.group;
  Group& group = groups_[name];
  process.private_bytes += private_bytes;
  group.file_bytes += file_bytes;
  const auto limit = Number(group.values["memory.max"]);
  if (!limit.has_value() || Usage(name) <= *limit) return;
  group.file_bytes -= std::min(group.file_bytes, Usage(name) - *limit);
  if (Usage(name) <= *limit) return;
  const std::vector<pid_t> doomed = group.values["memory.oom.group"] == "1" ? In(name, false) : std::vector{pid};
  group.oom_kills += doomed.size();
  for (const pid_t one : doomed) Kill(one);
}

std::set<std::string> FakeCgroupFs::ControllersOf(const std::string& group) const {
  return group.empty() ? controllers_ : groups_.at(ParentOf(group)).subtree;
}

bool FakeCgroupFs::HasFile(const std::string& group, std::string_view file) const {
  if (Contains(kWithoutController, file)) return true;
  const std::set<std::string> on = ControllersOf(group);
  if (file == "pids.max") return on.contains("pids");
  if (file == "cpu.weight") return on.contains("cpu");
  return Contains(kMemoryFiles, file) && on.contains("memory");
}

std::vector<pid_t> FakeCgroupFs::In(const std::string& group, bool below) const {
  std::vector<pid_t> pids;
  for (const auto& [pid, process] : processes_) {
    const bool inside = group.empty() || process.group.starts_with(group + "/");
    if (process.group == group || (below && inside)) pids.push_back(pid);
  }
  return pids;
}

std::vector<std::string> FakeCgroupFs::Below(const std::string& group) const {
  std::vector<std::string> names;
  for (const auto& [name, state] : groups_) {
    if (name != group && (group.empty() || name.starts_with(group + "/"))) names.push_back(name);
  }
  return names;
}

uint64_t FakeCgroupFs::Usage(const std::string& group) const {
  uint64_t usage = groups_.at(group).file_bytes;
  for (const pid_t pid : In(group, true)) usage += processes_.at(pid).private_bytes;
  return usage;
}

// No processes in inner nodes: a group that gives controllers to groups below it takes none.
int FakeCgroupFs::WriteProcs(const std::string& group, std::string_view text) {
  const auto pid = Number(text);
  if (!pid.has_value()) return -EINVAL;
  const auto process = processes_.find(static_cast<pid_t>(*pid));
  if (process == processes_.end()) return -ESRCH;
  if (!groups_[group].subtree.empty()) return -EBUSY;
  process->second.group = group;
  return 0;
}

int FakeCgroupFs::WriteControl(const std::string& group, std::string_view text) {
  if (text.size() < 2 || (text[0] != '+' && text[0] != '-')) return -EINVAL;
  const std::string name(text.substr(1));
  if (!controllers_.contains(name) && name != "cpu" && name != "memory" && name != "pids") return -EINVAL;
  if (text[0] == '-') {
    for (const std::string& below : Below(group)) {
      if (groups_[below].subtree.contains(name)) return -EBUSY;
    }
    groups_[group].subtree.erase(name);
    return 0;
  }
  if (!ControllersOf(group).contains(name)) return -ENOENT;
  if (!In(group, false).empty()) return -EBUSY;
  groups_[group].subtree.insert(name);
  return 0;
}

int FakeCgroupFs::WriteKill(const std::string& group, std::string_view text) {
  if (!Number(text).has_value()) return -EINVAL;
  if (text != "1") return -ERANGE;
  for (const pid_t pid : In(group, true)) Kill(pid);
  return 0;
}

int FakeCgroupFs::WriteValue(const std::string& group, std::string_view file, std::string_view text) {
  if (file == "memory.stat" || file == "memory.events") return -EACCES;
  const bool may_be_max = file != "cpu.weight" && file != "memory.oom.group";
  if (!Number(text).has_value() && !(may_be_max && text == "max")) return -EINVAL;
  if (file == "cpu.weight" && (*Number(text) < 1 || *Number(text) > 10'000)) return -ERANGE;
  groups_[group].values[std::string(file)] = text;
  return 0;
}

void FakeCgroupFs::Kill(pid_t pid) {
  const auto process = processes_.find(pid);
  if (process != processes_.end() && !process->second.slow) processes_.erase(process);
}

}  // namespace bulkhead::supervisor::test
