// Owners of descriptors and processes: what they hold is returned by their destructors.
#pragma once

#include <sys/types.h>

#include <utility>

namespace bulkhead {

// Owns one descriptor. Move-only; -1 is empty.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) Reset(std::exchange(other.fd_, -1));
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { Reset(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  [[nodiscard]] int Release() { return std::exchange(fd_, -1); }
  void Reset(int fd = -1);

 private:
  int fd_ = -1;
};

// One child process of ours, named by its pidfd so that a reused pid is never signalled. The owner must reap it
// (see supervisor/); the destructor only closes the descriptor.
class Pidfd {
 public:
  Pidfd() = default;
  Pidfd(pid_t pid, UniqueFd fd) : pid_(pid), fd_(std::move(fd)) {}

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] bool valid() const { return fd_.valid(); }

 private:
  pid_t pid_ = -1;
  UniqueFd fd_;
};

}  // namespace bulkhead
