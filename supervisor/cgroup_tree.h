// The cgroup that was delegated to us, divided: the daemon in a leaf of its own, and a leaf per worker process with its
// limits. The kernel allows no processes beside groups that have controllers, which is why the daemon has to move.
//
// A leaf holds what the launcher's other means cannot: memory of every kind, pages of the model file included; a kill
// that reaches whatever the worker started; and the kernel's own word on whether memory was what it died of.
// Loop thread only. Leaves must not outlive their tree.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "supervisor/cgroup_fs.h"

namespace bulkhead::supervisor {

// What a leaf may use. Bytes; 0 = no limit.
struct LeafLimits {
  uint64_t memory_max = 0;
  uint64_t memory_high = 0;  // from here on the kernel takes file pages back and slows the process down
  uint32_t pids_max = 0;
  uint32_t cpu_weight = 0;  // 1 to 10000, the daemon's own leaf has kDaemonCpuWeight
};

inline constexpr uint32_t kDaemonCpuWeight = 400;
inline constexpr uint32_t kWorkerCpuWeight = 100;
inline constexpr uint32_t kLoaderCpuWeight = 25;  // until READY: whoever is being served keeps its processor time

// The limits of a worker with that much private memory (0 = none), these weights and so many computing threads. The
// weights count in full: whoever touches a page of the file first is charged for it, so it may be this worker for all.
LeafLimits LimitsOf(uint64_t private_bytes, uint64_t weight_bytes, uint32_t threads);

// What the kernel says about a leaf. Bytes.
struct LeafReading {
  std::optional<uint64_t> private_bytes;  // anonymous, shared and swapped: of this leaf alone
  uint64_t private_peak = 0;              // the largest private_bytes read so far
  uint64_t file_bytes = 0;                // page cache charged to this leaf
  bool counts_memory = false;             // the rest means something
  uint64_t oom_kills = 0;                 // processes of this leaf killed for want of memory, whoever's limit it was
  uint64_t limit_hits = 0;                // times this leaf's own limit left no way out
  uint64_t memory_max = 0;
};

class CgroupTree;

class CgroupLeaf {
 public:
  ~CgroupLeaf();  // kills what is left in it and removes it, later if the kernel is not ready
  CgroupLeaf(const CgroupLeaf&) = delete;
  CgroupLeaf& operator=(const CgroupLeaf&) = delete;

  // Moves a process in, with all its threads.
  absl::Status Enter(pid_t pid);
  // SIGKILL to every process in it. False where this kernel cannot (before 5.14).
  bool Kill();
  LeafReading Read();
  void SetCpuWeight(uint32_t weight);
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  friend class CgroupTree;
  CgroupLeaf(CgroupTree* tree, std::string name, uint64_t memory_max)
      : tree_(tree), name_(std::move(name)), memory_max_(memory_max) {}

  CgroupTree* tree_;
  std::string name_;
  uint64_t memory_max_;
  uint64_t private_peak_ = 0;
};

class CgroupTree {
 public:
  struct Adoption {
    std::unique_ptr<CgroupTree> tree;  // null where there is none
    std::string why;                   // in words: what holds, or why there is none
  };
  // Takes over the group we are in, if it was delegated: marked by systemd (Delegate=yes) or whoever else made it, in
  // the attribute user.delegate or trusted.delegate.
  static Adoption AdoptOwn();
  // Takes over `fs`: moves `self` to the leaf "daemon", removes leaves that an earlier life left, turns on the
  // controllers there are.
  static Adoption Adopt(std::unique_ptr<CgroupFs> fs, pid_t self, const std::string& name);
  ~CgroupTree();

  // Errors name the file and what the kernel said; nothing is left behind then.
  absl::StatusOr<std::unique_ptr<CgroupLeaf>> MakeLeaf(const std::string& name, const LeafLimits& limits);

  [[nodiscard]] bool has_memory() const { return memory_; }
  [[nodiscard]] bool has_pids() const { return pids_; }
  [[nodiscard]] bool has_cpu() const { return cpu_; }
  // Removes leaves whose processes took their time to go; returns how many are still there.
  size_t RemoveLeft();

 private:
  friend class CgroupLeaf;
  CgroupTree(std::unique_ptr<CgroupFs> fs) : fs_(std::move(fs)) {}

  absl::Status MoveIn(pid_t self);
  std::string TurnOnControllers();
  absl::Status SetLimits(const std::string& leaf, const LeafLimits& limits);
  void Remove(const std::string& leaf);

  std::unique_ptr<CgroupFs> fs_;
  bool memory_ = false;
  bool pids_ = false;
  bool cpu_ = false;
  std::vector<std::string> left_;
};

}  // namespace bulkhead::supervisor
