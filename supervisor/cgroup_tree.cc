#include "supervisor/cgroup_tree.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/sys.h"
#include "supervisor/own_cgroup.h"

namespace bulkhead::supervisor {
namespace {

constexpr char kDaemonLeaf[] = "daemon";
constexpr std::string_view kWorkerPrefix = "worker-";
constexpr uint64_t kPage = 4096;
// Page tables of the map, sockets, stacks in the kernel.
constexpr uint64_t kKernelBytes = 16 << 20;
// Main, loader, intake, engine, and room for what the C library may start.
constexpr uint32_t kOtherThreads = 16;

uint64_t RoundUp(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

std::string OrMax(uint64_t bytes) { return bytes == 0 ? "max" : fmt::format("{}", bytes); }

bool HasWord(std::string_view text, std::string_view word) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of(" \n", at), text.size());
    if (text.substr(at, end - at) == word) return true;
    at = end + 1;
  }
  return false;
}

absl::Status Refused(int error, std::string_view leaf, std::string_view file) {
  return ErrnoError(-error, fmt::format("cgroup {}/{}", leaf, file));
}

bool IsDelegated(const std::string& directory) {
  for (const char* const name : {"user.delegate", "trusted.delegate"}) {
    std::array<char, 8> value = {};
    if (sys::GetXattr(directory.c_str(), name, value) == 1 && value[0] == '1') return true;
  }
  return false;
}

}  // namespace

LeafLimits LimitsOf(uint64_t private_bytes, uint64_t weight_bytes, uint32_t threads) {
  LeafLimits limits;
  limits.pids_max = threads + kOtherThreads;
  limits.cpu_weight = kLoaderCpuWeight;
  if (private_bytes == 0) return limits;
  // A page table entry of 8 bytes for each page of the map.
  const uint64_t own = private_bytes + weight_bytes + weight_bytes / 512 + kKernelBytes;
  limits.memory_high = RoundUp(own);
  limits.memory_max = RoundUp(own + std::max(kKernelBytes, own / 64));
  return limits;
}

// --- Leaves.

CgroupLeaf::~CgroupLeaf() { tree_->Remove(name_); }

absl::Status CgroupLeaf::Enter(pid_t pid) {
  const int error = tree_->fs_->Write(name_, "cgroup.procs", fmt::format("{}", pid));
  return error < 0 ? Refused(error, name_, "cgroup.procs") : absl::OkStatus();
}

bool CgroupLeaf::Kill() { return tree_->fs_->Write(name_, "cgroup.kill", "1") == 0; }

LeafReading CgroupLeaf::Read() {
  LeafReading reading;
  reading.memory_max = memory_max_;
  std::string text;
  if (!tree_->memory_) return reading;
  reading.counts_memory = true;
  if (tree_->fs_->Read(name_, "memory.stat", &text) == 0) {
    reading.file_bytes = NumberAfter(text, "file ").value_or(0);
    const uint64_t shared = NumberAfter(text, "shmem ").value_or(0);
    // The kernel counts shared memory as file pages too.
    reading.file_bytes -= std::min(reading.file_bytes, shared);
    if (const auto anonymous = NumberAfter(text, "anon ")) reading.private_bytes = *anonymous + shared;
  }
  if (tree_->fs_->Read(name_, "memory.events", &text) == 0) {
    reading.oom_kills = NumberAfter(text, "oom_kill ").value_or(0);
    reading.limit_hits = NumberAfter(text, "oom ").value_or(0);
  }
  private_peak_ = std::max(private_peak_, reading.private_bytes.value_or(0));
  reading.private_peak = private_peak_;
  return reading;
}

void CgroupLeaf::SetCpuWeight(uint32_t weight) {
  if (tree_->cpu_) (void)tree_->fs_->Write(name_, "cpu.weight", fmt::format("{}", weight));
}

// --- The tree.

CgroupTree::Adoption CgroupTree::AdoptOwn() {
  const auto place = OwnCgroup("");
  if (!place.has_value()) return {nullptr, "this machine has no cgroup v2"};
  const std::string directory = place->directory();
  // A daemon that was started inside an adopted group (by its own earlier life, say) belongs to the one above.
  const std::string suffix = fmt::format("/{}", kDaemonLeaf);
  if (directory.ends_with(suffix)) {
    const std::string above = directory.substr(0, directory.size() - suffix.size());
    if (IsDelegated(above)) return Adopt(MakeKernelCgroupFs(above), sys::GetPid(), above);
  }
  if (!IsDelegated(directory)) return {nullptr, fmt::format("{} was not delegated (Delegate=yes)", directory)};
  return Adopt(MakeKernelCgroupFs(directory), sys::GetPid(), directory);
}

CgroupTree::Adoption CgroupTree::Adopt(std::unique_ptr<CgroupFs> fs, pid_t self, const std::string& name) {
  std::unique_ptr<CgroupTree> tree(new CgroupTree(std::move(fs)));
  if (const absl::Status moved = tree->MoveIn(self); !moved.ok()) {
    return {nullptr, fmt::format("{} cannot be taken over: {}", name, Message(moved))};
  }
  std::vector<std::string> groups;
  (void)tree->fs_->Groups("", &groups);
  for (const std::string& group : groups) {
    if (group.starts_with(kWorkerPrefix)) tree->Remove(group);
  }
  const std::string missing = tree->TurnOnControllers();
  return {std::move(tree), fmt::format("{}: a leaf per worker{}", name, missing)};
}

CgroupTree::~CgroupTree() { RemoveLeft(); }

absl::Status CgroupTree::MoveIn(pid_t self) {
  int error = fs_->MakeGroup(kDaemonLeaf);
  if (error < 0 && error != -EEXIST) return Refused(error, "", kDaemonLeaf);
  error = fs_->Write(kDaemonLeaf, "cgroup.procs", fmt::format("{}", self));
  return error < 0 ? Refused(error, kDaemonLeaf, "cgroup.procs") : absl::OkStatus();
}

// In words what is missing.
std::string CgroupTree::TurnOnControllers() {
  std::string offered;
  (void)fs_->Read("", "cgroup.controllers", &offered);
  std::vector<std::string> missing;
  const auto turn_on = [&](const char* name) {
    int error = -ENOENT;
    if (HasWord(offered, name)) error = fs_->Write("", "cgroup.subtree_control", fmt::format("+{}", name));
    if (error < 0) {
      missing.push_back(error == -EBUSY ? fmt::format("{} (other processes are in our group)", name) : name);
    }
    return error == 0;
  };
  memory_ = turn_on("memory");
  pids_ = turn_on("pids");
  cpu_ = turn_on("cpu");
  if (cpu_) (void)fs_->Write(kDaemonLeaf, "cpu.weight", fmt::format("{}", kDaemonCpuWeight));
  return missing.empty() ? "" : fmt::format(", without {}", fmt::join(missing, ", "));
}

absl::StatusOr<std::unique_ptr<CgroupLeaf>> CgroupTree::MakeLeaf(const std::string& name, const LeafLimits& limits) {
  RemoveLeft();
  const std::string leaf = fmt::format("{}{}", kWorkerPrefix, name);
  if (const int error = fs_->MakeGroup(leaf); error < 0) return Refused(error, leaf, "");
  if (const absl::Status set = SetLimits(leaf, limits); !set.ok()) {
    Remove(leaf);
    return set;
  }
  return std::unique_ptr<CgroupLeaf>(new CgroupLeaf(this, leaf, memory_ ? limits.memory_max : 0));
}

absl::Status CgroupTree::SetLimits(const std::string& leaf, const LeafLimits& limits) {
  struct Value {
    bool wanted;
    const char* file;
    std::string text;
    bool optional;  // of a controller or kernel that may lack it
  };
  const std::array<Value, 6> values = {{
      {memory_, "memory.max", OrMax(limits.memory_max), false},
      {memory_, "memory.high", OrMax(limits.memory_high), false},
      {memory_, "memory.swap.max", "0", true},  // a kernel without swap accounting has no such file
      {memory_, "memory.oom.group", "1", false},
      {pids_ && limits.pids_max > 0, "pids.max", fmt::format("{}", limits.pids_max), false},
      {cpu_ && limits.cpu_weight > 0, "cpu.weight", fmt::format("{}", limits.cpu_weight), false},
  }};
  for (const Value& value : values) {
    if (!value.wanted) continue;
    const int error = fs_->Write(leaf, value.file, value.text);
    if (error < 0 && !(value.optional && error == -ENOENT)) return Refused(error, leaf, value.file);
  }
  return absl::OkStatus();
}

void CgroupTree::Remove(const std::string& leaf) {
  (void)fs_->Write(leaf, "cgroup.kill", "1");
  if (const int error = fs_->RemoveGroup(leaf); error < 0 && error != -ENOENT) left_.push_back(leaf);
}

size_t CgroupTree::RemoveLeft() {
  std::erase_if(left_, [this](const std::string& leaf) {
    const int error = fs_->RemoveGroup(leaf);
    return error == 0 || error == -ENOENT;
  });
  return left_.size();
}

}  // namespace bulkhead::supervisor
