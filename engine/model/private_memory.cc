#include "engine/model/private_memory.h"

#include <absl/strings/cord.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/sys.h"

namespace bulkhead::engine {
namespace {

constexpr char kPayload[] = "bulkhead/memory-shortage";
constexpr size_t kTouchStride = 4096;

std::atomic<uint64_t> in_use{0};

uint64_t DataLimit() {
  rlimit limit{};
  if (sys::Prlimit(0, RLIMIT_DATA, nullptr, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return 0;
  return limit.rlim_cur;
}

absl::Status ShortageError(uint64_t wanted, std::string_view what, int error) {
  const MemoryShortage shortage{wanted, in_use.load(), DataLimit()};
  auto status =
      Error(Reason::kWorkerOom, fmt::format("{}: cannot map {} bytes: {}; {} bytes in use, limit {}", what, wanted,
                                            std::strerror(error), shortage.in_use_bytes, shortage.limit_bytes));
  std::string payload(sizeof shortage, '\0');
  std::memcpy(payload.data(), &shortage, sizeof shortage);
  status.SetPayload(kPayload, absl::Cord(payload));
  return status;
}

}  // namespace

std::optional<MemoryShortage> ShortageOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kPayload);
  if (!payload || payload->size() != sizeof(MemoryShortage)) return std::nullopt;
  const std::string bytes(*payload);
  MemoryShortage shortage;
  std::memcpy(&shortage, bytes.data(), sizeof shortage);
  return shortage;
}

absl::StatusOr<PrivateMemory> PrivateMemory::Map(uint64_t bytes, std::string_view what) {
  if (bytes == 0) return PrivateMemory();
  void* data = nullptr;
  const int result =
      sys::Mmap(&data, nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (result < 0) return ShortageError(bytes, what, -result);
  sys::Madvise(data, bytes, MADV_HUGEPAGE);  // refused where huge pages are off; small ones do
  for (uint64_t offset = 0; offset < bytes; offset += kTouchStride) {
    static_cast<volatile char*>(data)[offset] = 0;
  }
  in_use.fetch_add(bytes);
  return PrivateMemory(static_cast<std::byte*>(data), bytes);
}

PrivateMemory::~PrivateMemory() {
  if (data_ == nullptr) return;
  sys::Munmap(data_, size_);
  in_use.fetch_sub(size_);
}

uint64_t PrivateMemory::InUse() { return in_use.load(); }

}  // namespace bulkhead::engine
