#include "supervisor/memory_probe.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <array>
#include <span>
#include <string_view>

#include "base/sys.h"
#include "supervisor/own_cgroup.h"

namespace bulkhead::supervisor {
namespace {

std::optional<uint64_t> Kibibytes(std::string_view text, std::string_view key) {
  const auto number = NumberAfter(text, key);
  return number.has_value() ? std::optional(*number << 10) : std::nullopt;
}

class ProcProcessMemory final : public ProcessMemory {
 public:
  explicit ProcProcessMemory(pid_t pid)
      : status_(OpenOf(pid, "status")), statm_(OpenOf(pid, "statm")), rollup_(OpenOf(pid, "smaps_rollup")) {}

  std::optional<uint64_t> PrivateBytes() override {
    // The short file costs a tenth of the long one, and says whether anything moved.
    std::array<char, 128> pages;
    const std::string_view now = Contents(statm_, pages);
    if (!now.empty() && now == last_pages_ && private_bytes_.has_value()) return private_bytes_;
    last_pages_ = now;
    std::array<char, 4096> buffer;
    const std::string_view text = Contents(status_, buffer);
    file_bytes_ = Kibibytes(text, "RssFile:");
    private_bytes_ = Kibibytes(text, "RssAnon:");
    // A zombie has no such lines.
    if (private_bytes_.has_value()) {
      *private_bytes_ += Kibibytes(text, "RssShmem:").value_or(0) + Kibibytes(text, "VmSwap:").value_or(0);
    }
    return private_bytes_;
  }

  std::optional<uint64_t> FileBytes() override { return file_bytes_; }

  std::optional<MapReading> Maps() override {
    std::array<char, 4096> buffer;
    const std::string_view text = Contents(rollup_, buffer);
    const auto share = Kibibytes(text, "Pss_File:");
    if (!share.has_value()) return std::nullopt;
    return MapReading{*share, Kibibytes(text, "AnonHugePages:").value_or(0),
                      Kibibytes(text, "FilePmdMapped:").value_or(0)};
  }

 private:
  static UniqueFd OpenOf(pid_t pid, const char* file) {
    const int fd = sys::Open(fmt::format("/proc/{}/{}", pid, file).c_str(), O_RDONLY);
    return UniqueFd(fd < 0 ? -1 : fd);
  }
  static std::string_view Contents(const UniqueFd& file, std::span<char> buffer) {
    const ssize_t got = file.valid() ? sys::Pread(file.get(), buffer.data(), buffer.size(), 0) : -1;
    return {buffer.data(), got > 0 ? static_cast<size_t>(got) : 0};
  }

  UniqueFd status_;
  UniqueFd statm_;
  UniqueFd rollup_;
  std::string last_pages_;
  std::optional<uint64_t> private_bytes_;
  std::optional<uint64_t> file_bytes_;
};

class ProcMemoryProbe final : public MemoryProbe {
 public:
  MachineMemory Machine() override {
    MachineMemory memory;
    const std::string text = ReadTextFile(kMemInfo, kMemInfoBytes);
    memory.total = Kibibytes(text, "MemTotal:").value_or(0);
    memory.available = Kibibytes(text, "MemAvailable:");
    memory.cgroup_limit = OwnMemoryLimit();
    return memory;
  }
  std::optional<uint64_t> Available() override {
    return Kibibytes(ReadTextFile(kMemInfo, kMemInfoBytes), "MemAvailable:");
  }
  std::unique_ptr<ProcessMemory> Open(pid_t pid) override { return std::make_unique<ProcProcessMemory>(pid); }
  uint64_t OutOfMemoryKills() override {
    return NumberAfter(ReadTextFile("/proc/vmstat", 32 << 10), "oom_kill ").value_or(0);
  }

 private:
  static constexpr char kMemInfo[] = "/proc/meminfo";
  static constexpr size_t kMemInfoBytes = 8192;
};

}  // namespace

std::unique_ptr<MemoryProbe> MakeProcMemoryProbe() { return std::make_unique<ProcMemoryProbe>(); }

}  // namespace bulkhead::supervisor
