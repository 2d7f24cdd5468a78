// A connection carrying frames on a libuv loop. Loop thread only. The socket's descriptor number is returned to the
// kernel only after libuv's close callback, so that no later connection gets this one's events.
#pragma once

#include <uv.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "ipc/limits.h"

namespace google::protobuf {
class MessageLite;
}

namespace bulkhead::ipc {

// What all sockets of one loop share. Must outlive them and the loop's last close callback.
struct SocketLoop {
  explicit SocketLoop(uv_loop_t* loop) : uv(loop), read_buffer(kReadBufferBytes) {}

  uv_loop_t* uv;
  std::vector<std::byte> read_buffer;
};

class FrameSocket {
 public:
  // The owner's side. All calls come from the loop, except that OnCongested(true) comes from inside Send. The socket
  // may be destroyed inside any of them.
  class Listener {
   public:
    virtual ~Listener() = default;
    // One whole payload, valid during the call, and the descriptor that came with it (may be empty).
    virtual void OnFrame(std::string_view bytes, UniqueFd descriptor) = 0;
    // The last call, once: OK where the peer closed between two frames, else why the connection ended. Everything that
    // had arrived was delivered before. Not called after Close.
    virtual void OnClosed(const absl::Status& why) = 0;
    // What arrived is no frame: kProtocolError or kFrameTooLarge. A last word may be sent here; unless the owner closes
    // the connection in this call, it ends with OnClosed(why) right after.
    virtual void OnMalformed(const absl::Status& why) { (void)why; }
    // Bytes now set aside for a frame that is not whole yet; told after reading whenever that has changed.
    virtual void OnBuffered(size_t bytes) { (void)bytes; }
    // The output queue rose over the high mark, or fell to the low one.
    virtual void OnCongested(bool congested) { (void)congested; }
    // All that had been queued was written; from the loop only, and not where nothing had to wait.
    virtual void OnFlushed() {}
  };

  struct Options {
    uint32_t max_frame_bytes = kDefaultMaxFrame;
    size_t high_water = kOutputHighWater;
    size_t low_water = kOutputLowWater;
    size_t max_queued_bytes = kDefaultMaxQueued;
  };

  // Takes over a connected socket and starts reading. `loop` and `listener` must outlive the FrameSocket.
  static absl::StatusOr<std::unique_ptr<FrameSocket>> Create(SocketLoop& loop, UniqueFd fd, const Options& options,
                                                             Listener* listener);
  ~FrameSocket();  // as Close
  FrameSocket(const FrameSocket&) = delete;
  FrameSocket& operator=(const FrameSocket&) = delete;

  // Sends or queues one frame, in order. After the connection has failed or was closed it does nothing and says
  // kConnectionLost; kLimitExceeded where the queue is full, which also ends the connection (OnClosed follows from the
  // loop). kFrameTooLarge leaves the connection as it was.
  absl::Status Send(const google::protobuf::MessageLite& message, UniqueFd descriptor = {});
  // The same for a frame encoded by EncodeFrame or EncodePayload.
  absl::Status SendEncoded(std::string frame, UniqueFd descriptor = {});

  // Ends the connection for the owner's reason: what is queued is dropped, what has arrived is still delivered, and
  // OnClosed follows from the loop, never inside this call.
  void Fail(absl::Status why);
  // Ends the connection now; what is queued is dropped and the listener hears nothing any more. Idempotent.
  void Close();
  // Reads no more and calls the listener no more, but sends what is queued, for at most `within_ms`. The FrameSocket
  // itself may be destroyed at once; the loop keeps what is left.
  void CloseAfterFlush(uint64_t within_ms = 5000);

  // Reads what has arrived without waiting for the loop, at most `max_bytes`, as when the peer's process was seen to
  // end. May call the listener, OnClosed included.
  void ReadAvailable(size_t max_bytes);

  void set_max_frame_bytes(uint32_t bytes);
  [[nodiscard]] size_t queued_bytes() const;
  [[nodiscard]] bool congested() const;
  // False once closed or failed.
  [[nodiscard]] bool open() const;
  // For getsockopt only; -1 once closed.
  [[nodiscard]] int fd() const;

  struct State;

 private:
  explicit FrameSocket(State* state) : state_(state) {}

  State* state_;  // lives on in the loop until its handles are closed
};

}  // namespace bulkhead::ipc
