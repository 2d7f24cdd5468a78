// A connection carrying frames for a thread that may wait: tests, the client's blocking facade, tools. Every wait has a
// limit. One thread at a time.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "ipc/frame_channel.h"
#include "ipc/limits.h"

namespace google::protobuf {
class MessageLite;
}

namespace bulkhead::ipc {

struct ReceivedFrame {
  std::string bytes;
  UniqueFd descriptor;
};

class BlockingFrameSocket {
 public:
  explicit BlockingFrameSocket(UniqueFd fd, uint32_t max_frame_bytes = kDefaultMaxFrame);

  // Returns once everything was handed to the kernel. kDeadlineExceeded when `timeout` passed (the rest stays queued
  // and goes out with the next call), kConnectionLost when the peer is gone.
  absl::Status Send(const google::protobuf::MessageLite& message, Duration timeout, UniqueFd descriptor = {});
  absl::Status SendEncoded(std::string frame, Duration timeout, UniqueFd descriptor = {});

  // The next frame. kDeadlineExceeded when `timeout` passed, kConnectionLost at the stream's end, kProtocolError and
  // kFrameTooLarge as FrameReader. Queued output goes out meanwhile.
  absl::StatusOr<ReceivedFrame> Receive(Duration timeout);

  [[nodiscard]] int fd() const { return channel_.fd(); }

 private:
  absl::Status Fill(Duration deadline);
  absl::Status WaitFor(short events, Duration deadline, short* ready);

  FrameChannel channel_;
  std::deque<ReceivedFrame> frames_;
  std::vector<std::byte> buffer_;
  bool ended_ = false;
};

}  // namespace bulkhead::ipc
