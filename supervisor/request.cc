#include "supervisor/request.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include "base/sys.h"

namespace bulkhead::supervisor {
namespace {

// FNV-1a over 64-bit words: a name, not a defence; the file's identity itself is compared wherever it matters.
uint64_t Mix(uint64_t hash, uint64_t word) {
  for (int shift = 0; shift < 64; shift += 8) {
    hash ^= (word >> shift) & 0xFF;
    hash *= 0x100000001B3ULL;
  }
  return hash;
}

}  // namespace

std::string PassedModelName(int fd, uid_t uid) {
  struct stat info = {};
  if (sys::Fstat(fd, &info) < 0) return {};
  uint64_t hash = 0xCBF29CE484222325ULL;
  for (const uint64_t word :
       {static_cast<uint64_t>(uid), static_cast<uint64_t>(info.st_dev), static_cast<uint64_t>(info.st_ino),
        static_cast<uint64_t>(info.st_size), static_cast<uint64_t>(info.st_mtim.tv_sec),
        static_cast<uint64_t>(info.st_mtim.tv_nsec)}) {
    hash = Mix(hash, word);
  }
  return fmt::format("fd:{}:{:016x}", uid, hash);
}

}  // namespace bulkhead::supervisor
