#include "ipc/blocking_frame_socket.h"

#include <google/protobuf/message_lite.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <vector>

#include "base/sys.h"

namespace bulkhead::ipc {
namespace {

Duration Now() { return SystemClock().Monotonic(); }

}  // namespace

BlockingFrameSocket::BlockingFrameSocket(UniqueFd fd, uint32_t max_frame_bytes)
    : channel_(std::move(fd), max_frame_bytes) {}

absl::Status BlockingFrameSocket::Send(const google::protobuf::MessageLite& message, Duration timeout,
                                       UniqueFd descriptor) {
  ASSIGN_OR_RETURN(std::string frame, EncodeFrame(message));
  return SendEncoded(std::move(frame), timeout, std::move(descriptor));
}

absl::Status BlockingFrameSocket::SendEncoded(std::string frame, Duration timeout, UniqueFd descriptor) {
  const Duration deadline = Now() + timeout;
  channel_.Queue(std::move(frame), std::move(descriptor));
  while (true) {
    RETURN_IF_ERROR(channel_.Flush());
    if (channel_.queued_bytes() == 0) return absl::OkStatus();
    short ready = 0;
    RETURN_IF_ERROR(WaitFor(POLLOUT, deadline, &ready));
  }
}

absl::StatusOr<ReceivedFrame> BlockingFrameSocket::Receive(Duration timeout) {
  const Duration deadline = Now() + timeout;
  while (frames_.empty()) {
    if (ended_) return Error(Reason::kConnectionLost, "connection: closed by the peer");
    RETURN_IF_ERROR(Fill(deadline));
  }
  ReceivedFrame frame = std::move(frames_.front());
  frames_.pop_front();
  return frame;
}

absl::Status BlockingFrameSocket::Fill(Duration deadline) {
  const short wanted = channel_.queued_bytes() > 0 ? POLLIN | POLLOUT : POLLIN;
  short ready = 0;
  RETURN_IF_ERROR(WaitFor(wanted, deadline, &ready));
  // A peer that reads no more may still have sent an answer: what it sent counts, the failed write does not.
  if ((ready & POLLOUT) != 0) (void)channel_.Flush();
  if (buffer_.empty()) buffer_.resize(64 << 10);
  ASSIGN_OR_RETURN(const auto end, channel_.Read(buffer_, 1, [this](std::string_view bytes, UniqueFd descriptor) {
    frames_.push_back({std::string(bytes), std::move(descriptor)});
    return true;
  }));
  ended_ = end == FrameChannel::ReadEnd::kEof;
  return absl::OkStatus();
}

absl::Status BlockingFrameSocket::WaitFor(short events, Duration deadline, short* ready) {
  while (true) {
    const Duration left = std::max(deadline - Now(), Duration::zero());
    const auto wait_ms = std::chrono::ceil<std::chrono::milliseconds>(std::min<Duration>(left, std::chrono::hours(1)));
    pollfd entry = {channel_.fd(), events, 0};
    const int count = sys::Poll(&entry, 1, static_cast<int>(wait_ms.count()));
    if (count > 0) {
      *ready = entry.revents;
      return absl::OkStatus();
    }
    if (count < 0 && count != -EINTR) return ErrnoError(-count, "poll of a connection");
    if (Now() >= deadline) return Error(Reason::kDeadlineExceeded, "connection: the peer did not answer in time");
  }
}

}  // namespace bulkhead::ipc
