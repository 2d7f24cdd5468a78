// What the kernel says about memory: of the machine, and of one process. An interface so that tests can say it instead.
// Bytes throughout. Loop thread only unless said otherwise; nothing here waits.
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

// How a process's memory is mapped.
struct MapReading {
  uint64_t share_of_files = 0;  // pages of files, each divided by the number of processes that map it
  uint64_t huge_private = 0;    // in huge pages
  uint64_t huge_files = 0;
};

// One live process; its files stay open, since the fence closes them to everyone who comes later.
class ProcessMemory {
 public:
  virtual ~ProcessMemory() = default;
  // RssAnon + RssShmem + VmSwap; nullopt once the process has ended.
  virtual std::optional<uint64_t> PrivateBytes() = 0;
  // Pages of files mapped and present, as of the last PrivateBytes.
  virtual std::optional<uint64_t> FileBytes() { return std::nullopt; }
  // Walks the page tables of the whole map, some milliseconds a gigabyte: for a pool thread, which may call it beside
  // the others.
  virtual std::optional<MapReading> Maps() { return std::nullopt; }
};

class MemoryProbe {
 public:
  virtual ~MemoryProbe() = default;
  virtual MachineMemory Machine() = 0;
  // Machine().available alone, for those who ask often.
  virtual std::optional<uint64_t> Available() { return Machine().available; }
  // Never null: of a process that cannot be examined PrivateBytes is nullopt.
  virtual std::unique_ptr<ProcessMemory> Open(pid_t pid) = 0;
  // Processes the kernel killed for lack of memory since boot; 0 where it does not say.
  virtual uint64_t OutOfMemoryKills() = 0;
};

// /proc and /sys/fs/cgroup.
std::unique_ptr<MemoryProbe> MakeProcMemoryProbe();

}  // namespace bulkhead::supervisor
