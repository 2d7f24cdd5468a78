// The worker's main thread: one poll loop over the control socket and the outbox. It never loads or computes, so it
// sees the daemon's end of the socket close at once, whatever the other threads do. Main thread only, but for Stop.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "ipc/frame_channel.h"
#include "worker/out_of_memory.h"
#include "worker/outbox.h"

namespace bulkhead::v1 {
class DaemonFrame;
}

namespace bulkhead::worker {

class ControlSession {
 public:
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void OnFrame(const v1::DaemonFrame& frame) = 0;
    // Called after whatever woke the loop; says when to be called again at the latest.
    virtual Duration OnTurn(Duration now) = 0;
  };

  // `outbox` and `writer` outlive the session.
  ControlSession(UniqueFd control, Outbox* outbox, ControlWriter* writer);

  // Serves until Stop (what is queued is sent first, for at most a second) or until the daemon is gone; the exit code.
  int Run(Handler& handler);
  // From any thread.
  void Stop(int exit_code);

  // Congested far beyond the mark: the daemon does not read, so it is not listened to either.
  static constexpr size_t kStopListening = size_t{4} << 20;

 private:
  // True where the daemon is gone.
  bool Wait(Duration until);
  absl::Status Read(Handler& handler);
  absl::Status Flush();

  ipc::FrameChannel channel_;
  Outbox& outbox_;
  ControlWriter& writer_;
  std::vector<std::byte> buffer_;
  bool readable_ = false;
  std::atomic<int> exit_code_{-1};
};

}  // namespace bulkhead::worker
