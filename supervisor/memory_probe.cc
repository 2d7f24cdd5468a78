#include "supervisor/memory_probe.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "base/sys.h"

namespace bulkhead::supervisor {
namespace {

// A cgroup v1 without a limit says the largest page-aligned number; nothing real comes near this.
constexpr uint64_t kUnlimited = uint64_t{1} << 60;

std::optional<uint64_t> ParseNumber(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  uint64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc()) return std::nullopt;
  return value;
}

// The number behind "key" at the start of a line.
std::optional<uint64_t> Field(std::string_view text, std::string_view key) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    if (line.substr(0, key.size()) == key) return ParseNumber(line.substr(key.size()));
    at = end + 1;
  }
  return std::nullopt;
}

std::string ReadText(const std::string& path, size_t limit) {
  std::string text(limit, '\0');
  const ssize_t got = sys::ReadSmallFile(AT_FDCWD, path.c_str(), text);
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return text;
}

std::optional<uint64_t> ReadLimit(const std::string& path) {
  const std::optional<uint64_t> limit = ParseNumber(ReadText(path, 64));
  if (!limit.has_value() || *limit >= kUnlimited) return std::nullopt;
  return limit;
}

// The tightest limit of `group` and its ancestors below `root`. A container may see its own group as "/", so the root
// itself is asked too.
std::optional<uint64_t> TightestLimit(const std::string& root, std::string group, const char* file) {
  std::optional<uint64_t> tightest;
  while (true) {
    const std::optional<uint64_t> limit = ReadLimit(fmt::format("{}{}/{}", root, group == "/" ? "" : group, file));
    if (limit.has_value()) tightest = std::min(tightest.value_or(*limit), *limit);
    if (group.empty() || group == "/") return tightest;
    group.resize(group.rfind('/'));
  }
}

std::optional<uint64_t> OwnCgroupLimit() {
  std::optional<uint64_t> tightest;
  const std::string groups = ReadText("/proc/self/cgroup", 16 << 10);
  for (size_t at = 0; at < groups.size();) {
    const size_t end = std::min(groups.find('\n', at), groups.size());
    const std::string_view line = std::string_view(groups).substr(at, end - at);
    at = end + 1;
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string path(line.substr(second + 1));
    std::optional<uint64_t> limit;
    if (controllers.empty()) limit = TightestLimit("/sys/fs/cgroup", path, "memory.max");
    if (controllers == "memory") limit = TightestLimit("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes");
    if (limit.has_value()) tightest = std::min(tightest.value_or(*limit), *limit);
  }
  return tightest;
}

class ProcProcessMemory final : public ProcessMemory {
 public:
  explicit ProcProcessMemory(pid_t pid) : status_(sys::Open(fmt::format("/proc/{}/status", pid).c_str(), O_RDONLY)) {}

  std::optional<uint64_t> PrivateBytes() override {
    if (!status_.valid()) return std::nullopt;
    std::array<char, 4096> buffer;
    const ssize_t got = sys::Pread(status_.get(), buffer.data(), buffer.size(), 0);
    if (got <= 0) return std::nullopt;
    const std::string_view text(buffer.data(), static_cast<size_t>(got));
    const std::optional<uint64_t> anonymous = Field(text, "RssAnon:");
    // A zombie has no such lines.
    if (!anonymous.has_value()) return std::nullopt;
    return (*anonymous + Field(text, "RssShmem:").value_or(0) + Field(text, "VmSwap:").value_or(0)) << 10;
  }

 private:
  UniqueFd status_;
};

class ProcMemoryProbe final : public MemoryProbe {
 public:
  MachineMemory Machine() override {
    MachineMemory memory;
    const std::string text = ReadText("/proc/meminfo", 8192);
    memory.total = Field(text, "MemTotal:").value_or(0) << 10;
    if (const auto available = Field(text, "MemAvailable:")) memory.available = *available << 10;
    memory.cgroup_limit = OwnCgroupLimit();
    return memory;
  }
  std::unique_ptr<ProcessMemory> Open(pid_t pid) override { return std::make_unique<ProcProcessMemory>(pid); }
  uint64_t OutOfMemoryKills() override { return Field(ReadText("/proc/vmstat", 32 << 10), "oom_kill ").value_or(0); }
};

}  // namespace

std::unique_ptr<MemoryProbe> MakeProcMemoryProbe() { return std::make_unique<ProcMemoryProbe>(); }

}  // namespace bulkhead::supervisor
