// Anonymous memory mapped and touched at once, huge pages asked for: a shortage shows where the mapping is made, while
// loading, and never in a decode.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "base/status.h"

namespace bulkhead::engine {

// The numbers of a refused mapping. They travel as a payload of the status (reason kWorkerOom).
struct MemoryShortage {
  uint64_t wanted_bytes = 0;
  uint64_t in_use_bytes = 0;  // mapped by this process's PrivateMemory before
  uint64_t limit_bytes = 0;   // RLIMIT_DATA; 0 = none, or not to be known
};
std::optional<MemoryShortage> ShortageOf(const absl::Status& status);

// Owns one zeroed mapping. Move-only.
class PrivateMemory {
 public:
  // `what` names it in the error.
  static absl::StatusOr<PrivateMemory> Map(uint64_t bytes, std::string_view what);

  PrivateMemory() = default;
  PrivateMemory(PrivateMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  PrivateMemory& operator=(PrivateMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~PrivateMemory();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t size() const { return size_; }

  // Bytes all live objects of this process hold.
  static uint64_t InUse();

 private:
  PrivateMemory(std::byte* data, size_t size) : data_(data), size_(size) {}

  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace bulkhead::engine
