// What the kernel says about memory: of the machine, and of one process. An interface so that tests can say it instead.
// Bytes throughout. Loop thread only; nothing here waits.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/fd.h"

namespace bulkhead::supervisor {

struct MachineMemory {
  uint64_t total = 0;
  std::optional<uint64_t> available;     // nullopt where the kernel does not say
  std::optional<uint64_t> cgroup_limit;  // of our own cgroup, v1 or v2; nullopt = none
};

// One live process; its files stay open, since the fence closes them to everyone who comes later.
class ProcessMemory {
 public:
  virtual ~ProcessMemory() = default;
  // RssAnon + RssShmem + VmSwap; nullopt once the process has ended.
  virtual std::optional<uint64_t> PrivateBytes() = 0;
};

class MemoryProbe {
 public:
  virtual ~MemoryProbe() = default;
  virtual MachineMemory Machine() = 0;
  // Never null: of a process that cannot be examined PrivateBytes is nullopt.
  virtual std::unique_ptr<ProcessMemory> Open(pid_t pid) = 0;
  // Processes the kernel killed for lack of memory since boot; 0 where it does not say.
  virtual uint64_t OutOfMemoryKills() = 0;
};

// /proc and /sys/fs/cgroup.
std::unique_ptr<MemoryProbe> MakeProcMemoryProbe();

}  // namespace bulkhead::supervisor
