#include "worker/out_of_memory.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>

#include "base/reason.h"
#include "base/sys.h"
#include "ipc/limits.h"

namespace bulkhead::worker {
namespace {

int g_control_fd = -1;
int g_statistics_fd = -1;
uint64_t g_page_bytes = 4096;
std::atomic<uint64_t> g_limit{0};
ControlWriter* g_writer = nullptr;

// WorkerFrame{load_failed: LoadFailed{reason, wanted, in_use, limit}} by hand: protobuf would allocate.
class ReportFrame {
 public:
  explicit ReportFrame(const ipc::OutOfMemoryReport& report) {
    size_ = kBodyAt;
    Field(1, static_cast<uint64_t>(Reason::kWorkerOom));
    Field(3, report.wanted_bytes);
    Field(4, report.in_use_bytes);
    Field(5, report.limit_bytes);
    bytes_[ipc::kFrameHeaderBytes] = (4 << 3) | 2;  // field 4, length-delimited
    bytes_[ipc::kFrameHeaderBytes + 1] = static_cast<char>(size_ - kBodyAt);
    const size_t payload = size_ - ipc::kFrameHeaderBytes;
    bytes_[0] = static_cast<char>(payload);
  }
  [[nodiscard]] std::string_view bytes() const { return {bytes_.data(), size_}; }

 private:
  static constexpr size_t kBodyAt = ipc::kFrameHeaderBytes + 2;

  void Field(int number, uint64_t value) {
    bytes_[size_++] = static_cast<char>(number << 3);
    for (; value >= 0x80; value >>= 7) bytes_[size_++] = static_cast<char>(value | 0x80);
    bytes_[size_++] = static_cast<char>(value);
  }

  std::array<char, 64> bytes_ = {};
  size_t size_ = 0;
};

void SendReport(const ipc::OutOfMemoryReport& report) {
  if (g_control_fd < 0 || g_writer == nullptr) return;
  // The writer may be the very thread that ran out: no waiting for ever.
  constexpr int kPatience = 1000;
  for (int i = 0; g_writer->busy.exchange(true); ++i) {
    if (i == kPatience) return;
    sched_yield();
  }
  if (g_writer->mid_frame.load()) return;
  const ReportFrame frame(report);
  (void)sys::Send(g_control_fd, frame.bytes().data(), frame.bytes().size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

void PrepareOutOfMemory(int control_fd, ControlWriter* writer) {
  g_control_fd = control_fd;
  g_writer = writer;
  g_page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  g_statistics_fd = sys::Open("/proc/self/statm", O_RDONLY);
}

void SetMemoryLimit(uint64_t limit_bytes) { g_limit.store(limit_bytes); }

uint64_t PrivateBytesInUse() {
  std::array<char, 128> text;
  if (g_statistics_fd < 0) return 0;
  const ssize_t size = sys::Pread(g_statistics_fd, text.data(), text.size(), 0);
  if (size <= 0) return 0;
  // proc(5): size resident shared text lib data dt, in pages.
  std::string_view rest(text.data(), static_cast<size_t>(size));
  for (int field = 0; field < 5; ++field) {
    const size_t space = rest.find(' ');
    if (space == std::string_view::npos) return 0;
    rest.remove_prefix(space + 1);
  }
  uint64_t pages = 0;
  std::from_chars(rest.data(), rest.data() + rest.size(), pages);
  return pages * g_page_bytes;
}

uint64_t MemoryLimit() {
  rlimit limit = {};
  if (sys::Prlimit(0, RLIMIT_DATA, nullptr, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) return limit.rlim_cur;
  return g_limit.load();
}

void ExitOutOfMemory(const ipc::OutOfMemoryReport& report) {
  std::array<char, 128> buffer;
  const std::string_view line = ipc::FormatOutOfMemory(report, buffer);
  (void)sys::Write(ipc::kWorkerStderr, line.data(), line.size());
  SendReport(report);
  std::_Exit(ipc::kWorkerExitOutOfMemory);
}

}  // namespace bulkhead::worker

#ifndef BULKHEAD_SANITIZER
// Replaced so that the report can say how much was wanted. The nothrow form keeps its meaning for those who ask for it.
void* operator new(std::size_t size) {
  if (void* data = std::malloc(size == 0 ? 1 : size)) return data;
  bulkhead::worker::ExitOutOfMemory({size, bulkhead::worker::PrivateBytesInUse(), bulkhead::worker::MemoryLimit()});
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return std::malloc(size == 0 ? 1 : size); }
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, std::size_t) noexcept { std::free(data); }
#endif
