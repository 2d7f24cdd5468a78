#include "ipc/frame_channel.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/sys.h"

namespace bulkhead::ipc {
namespace {

constexpr size_t kMaxPieces = 64;

absl::Status Lost(int error, const char* call) {
  char buffer[128];
  return Error(Reason::kConnectionLost, fmt::format("{}: {}", call, strerror_r(error, buffer, sizeof(buffer))));
}

// CMSG_LEN, not CMSG_SPACE: padding would leave room for a second descriptor.
struct DescriptorMessage {
  alignas(cmsghdr) char bytes[CMSG_SPACE(sizeof(int))] = {};

  void AttachTo(msghdr* message) {
    message->msg_control = bytes;
    message->msg_controllen = CMSG_LEN(sizeof(int));
  }
};

UniqueFd DescriptorOf(msghdr* message) {
  UniqueFd result;
  for (cmsghdr* header = CMSG_FIRSTHDR(message); header != nullptr; header = CMSG_NXTHDR(message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
    result.Reset(fd);
  }
  return result;
}

}  // namespace

FrameChannel::FrameChannel(UniqueFd fd, uint32_t max_frame_bytes) : fd_(std::move(fd)), reader_(max_frame_bytes) {
  const int flags = sys::Fcntl(fd_.get(), F_GETFL);
  if (flags >= 0) (void)sys::Fcntl(fd_.get(), F_SETFL, flags | O_NONBLOCK);
}

void FrameChannel::Queue(std::string frame, UniqueFd descriptor) {
  queued_bytes_ += frame.size();
  queue_.push_back({std::move(frame), std::move(descriptor)});
}

absl::Status FrameChannel::Flush() {
  while (!queue_.empty()) {
    const ssize_t sent = SendSome();
    if (sent == -EINTR) continue;
    if (sent == -EAGAIN) return absl::OkStatus();
    if (sent < 0) {
      queue_.clear();
      queued_bytes_ = front_sent_ = 0;
      return Lost(static_cast<int>(-sent), "sendmsg");
    }
    Consume(static_cast<size_t>(sent));
  }
  return absl::OkStatus();
}

ssize_t FrameChannel::SendSome() {
  std::array<iovec, kMaxPieces> pieces;
  msghdr message = {};
  message.msg_iov = pieces.data();
  DescriptorMessage control;
  size_t skip = front_sent_;
  for (Outgoing& outgoing : queue_) {
    if (message.msg_iovlen == kMaxPieces) break;
    const bool carries = outgoing.descriptor.valid();
    if (carries && message.msg_iovlen > 0) break;
    pieces[message.msg_iovlen++] = {outgoing.bytes.data() + skip, outgoing.bytes.size() - skip};
    skip = 0;
    if (!carries) continue;
    control.AttachTo(&message);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = outgoing.descriptor.get();
    std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    break;
  }
  return sys::SendMsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void FrameChannel::Consume(size_t sent) {
  queued_bytes_ -= sent;
  // It has gone with the first of these bytes.
  if (sent > 0) queue_.front().descriptor.Reset();
  front_sent_ += sent;
  while (!queue_.empty() && front_sent_ >= queue_.front().bytes.size()) {
    front_sent_ -= queue_.front().bytes.size();
    queue_.pop_front();
  }
}

absl::StatusOr<FrameChannel::ReadEnd> FrameChannel::Read(std::span<std::byte> buffer, int max_reads,
                                                         const FrameSink& sink) {
  for (int reads = 0; reads < max_reads; ++reads) {
    UniqueFd descriptor;
    const ssize_t size = ReadSome(buffer, &descriptor);
    if (size == -EINTR) continue;
    if (size == -EAGAIN) return ReadEnd::kWouldBlock;
    if (size == -EBADMSG) return Error(Reason::kProtocolError, "frame: more than one descriptor came with it");
    if (size < 0) return Lost(static_cast<int>(-size), "recvmsg");
    if (size == 0) {
      if (reader_.mid_frame()) return Error(Reason::kProtocolError, "frame: the connection ended inside it");
      return ReadEnd::kEof;
    }
    const std::string_view bytes(reinterpret_cast<const char*>(buffer.data()), static_cast<size_t>(size));
    ASSIGN_OR_RETURN(const bool go_on, Deliver(bytes, std::move(descriptor), sink));
    if (!go_on) return ReadEnd::kStopped;
  }
  return ReadEnd::kBudget;
}

ssize_t FrameChannel::ReadSome(std::span<std::byte> buffer, UniqueFd* descriptor) {
  iovec piece = {buffer.data(), buffer.size()};
  msghdr message = {};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  DescriptorMessage control;
  control.AttachTo(&message);
  const ssize_t size = sys::RecvMsg(fd_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (size < 0) return size;
  *descriptor = DescriptorOf(&message);
  return (message.msg_flags & MSG_CTRUNC) != 0 ? -EBADMSG : size;
}

absl::StatusOr<bool> FrameChannel::Deliver(std::string_view bytes, UniqueFd descriptor, const FrameSink& sink) {
  const uint64_t started_before = reader_.frames_started();
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<std::string_view> frame, reader_.Next(&bytes));
    if (!frame.has_value()) break;
    UniqueFd attached = std::move(held_);
    const bool began_here = reader_.frames_started() > started_before;
    if (descriptor.valid() && began_here && bytes.empty()) attached = std::move(descriptor);
    if (!sink(*frame, std::move(attached))) return false;
  }
  if (!descriptor.valid()) return true;
  if (!reader_.mid_frame() || reader_.frames_started() == started_before) {
    return Error(Reason::kProtocolError, "frame: a descriptor came in its middle");
  }
  held_ = std::move(descriptor);
  return true;
}

}  // namespace bulkhead::ipc
