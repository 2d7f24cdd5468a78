// Frames on their way from any thread to the control session, and how many of their bytes the daemon has not taken yet.
// Thread-safe. It does not refuse: whoever produces looks at congested() and pauses what produces.
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include "base/fd.h"

namespace google::protobuf {
class MessageLite;
}

namespace bulkhead::worker {

class Outbox {
 public:
  Outbox();

  // Encodes and adds one WorkerFrame; a frame that cannot be encoded ends the process (a bug, not an input).
  void Push(const google::protobuf::MessageLite& frame);
  // Makes the session's poll return.
  void Wake();

  // The session's side.
  [[nodiscard]] int wake_fd() const { return wake_fd_.get(); }
  void AcknowledgeWake();
  std::vector<std::string> Take();
  void Sent(size_t bytes) { pending_.fetch_sub(bytes); }

  [[nodiscard]] size_t pending_bytes() const { return pending_.load(); }
  // More than kOutputHighWater is pending; drained() once it is kOutputLowWater or less.
  [[nodiscard]] bool congested() const;
  [[nodiscard]] bool drained() const;

 private:
  UniqueFd wake_fd_;
  std::mutex mutex_;
  std::vector<std::string> frames_;
  std::atomic<size_t> pending_{0};
};

}  // namespace bulkhead::worker
