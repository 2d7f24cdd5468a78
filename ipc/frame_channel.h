// One Unix stream socket carrying frames, without any waiting: what FrameSocket (libuv), BlockingFrameSocket (poll) and
// the worker's control session have in common. Owns the descriptor and makes it non-blocking. Not thread-safe.
//
// A descriptor travels with the first byte of its frame, in a message of its own, exactly once. The receiver gives it
// to the last frame that began in the read it came with; the kernel ends a read behind such a message.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/status.h"
#include "ipc/frame.h"

namespace bulkhead::ipc {

class FrameChannel {
 public:
  // Called for every whole frame; the bytes are valid during the call. False ends the reading at once: the channel may
  // have been destroyed by the callee, and is not touched again.
  using FrameSink = std::function<bool(std::string_view bytes, UniqueFd descriptor)>;

  enum class ReadEnd {
    kBudget,      // there may be more to read
    kWouldBlock,  // nothing more for now
    kEof,         // the peer closed, between two frames
    kStopped,     // the sink returned false; the channel may be gone
  };

  FrameChannel(UniqueFd fd, uint32_t max_frame_bytes);

  // Appends one encoded frame (header included). The descriptor is closed here once it was sent.
  void Queue(std::string frame, UniqueFd descriptor = {});

  // Sends until the queue is empty or the socket is full; both are OK. Any other failure is kConnectionLost and final:
  // the queue is dropped.
  absl::Status Flush();

  // Reads at most `max_reads` times into `buffer` and hands out whole frames. kProtocolError or kFrameTooLarge for a
  // malformed stream, also one that ends inside a frame; kConnectionLost for a failing socket.
  absl::StatusOr<ReadEnd> Read(std::span<std::byte> buffer, int max_reads, const FrameSink& sink);

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] size_t queued_bytes() const { return queued_bytes_; }
  // Bytes set aside for an incoming frame that is not whole yet.
  [[nodiscard]] size_t buffered_bytes() const { return reader_.mid_frame() ? reader_.buffered_bytes() : 0; }
  // True while a frame has been sent in part.
  [[nodiscard]] bool mid_write() const { return front_sent_ > 0; }
  void set_max_frame_bytes(uint32_t bytes) { reader_.set_max_frame_bytes(bytes); }
  // Gives the descriptor up, to be closed by somebody who must wait with that.
  UniqueFd ReleaseFd() { return std::move(fd_); }

 private:
  struct Outgoing {
    std::string bytes;
    UniqueFd descriptor;
  };

  ssize_t SendSome();
  void Consume(size_t sent);
  // Bytes read, 0 at the end, or a negative errno; -EBADMSG for more than one descriptor.
  ssize_t ReadSome(std::span<std::byte> buffer, UniqueFd* descriptor);
  // False where the sink stopped it.
  absl::StatusOr<bool> Deliver(std::string_view bytes, UniqueFd descriptor, const FrameSink& sink);

  UniqueFd fd_;
  FrameReader reader_;
  std::deque<Outgoing> queue_;
  size_t front_sent_ = 0;
  size_t queued_bytes_ = 0;
  UniqueFd held_;  // came with the beginning of the frame that is not whole yet
};

}  // namespace bulkhead::ipc
