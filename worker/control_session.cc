#include "worker/control_session.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <utility>

#include "base/sys.h"
#include "bulkhead/v1/worker.pb.h"
#include "ipc/message.h"
#include "ipc/worker_abi.h"

namespace bulkhead::worker {
namespace {

constexpr Duration kFlushBeforeExit = std::chrono::seconds(1);

Duration Now() { return SystemClock().Monotonic(); }

}  // namespace

ControlSession::ControlSession(UniqueFd control, Outbox* outbox, ControlWriter* writer)
    : channel_(std::move(control), ipc::kMaxDaemonFrame), outbox_(*outbox), writer_(*writer), buffer_(64 << 10) {}

void ControlSession::Stop(int exit_code) {
  int none = -1;
  exit_code_.compare_exchange_strong(none, exit_code);
  outbox_.Wake();
}

int ControlSession::Run(Handler& handler) {
  Duration stop_by = Duration::max();
  while (true) {
    // A failed write says that the daemon is gone.
    if (!Flush().ok()) return ipc::kWorkerExitDaemonGone;
    const Duration now = Now();
    Duration until = handler.OnTurn(now);
    if (const int code = exit_code_.load(); code >= 0) {
      stop_by = std::min(stop_by, now + kFlushBeforeExit);
      if (outbox_.pending_bytes() == 0 || now >= stop_by) return code;
      until = std::min(until, stop_by);
    }
    if (Wait(until)) return ipc::kWorkerExitDaemonGone;
    if (!readable_) continue;
    if (absl::Status status = Read(handler); !status.ok()) {
      std::fprintf(stderr, "bulkhead-worker: control socket: %s\n", Message(status).c_str());
      return ReasonOf(status) == Reason::kConnectionLost ? ipc::kWorkerExitDaemonGone : ipc::kWorkerExitProtocol;
    }
  }
}

bool ControlSession::Wait(Duration until) {
  const bool listening = outbox_.pending_bytes() <= kStopListening;
  short wanted = 0;
  if (listening) wanted |= POLLIN;
  if (channel_.queued_bytes() > 0) wanted |= POLLOUT;
  pollfd entries[2] = {{channel_.fd(), wanted, 0}, {outbox_.wake_fd(), POLLIN, 0}};
  const Duration left = std::clamp<Duration>(until - Now(), Duration::zero(), std::chrono::minutes(1));
  const auto wait_ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  readable_ = false;
  const int count = sys::Poll(entries, 2, static_cast<int>(wait_ms));
  if (count < 0) return count != -EINTR;
  // A daemon that is gone wants nothing any more, whatever it had sent.
  if ((entries[0].revents & (POLLHUP | POLLERR | POLLNVAL)) != 0) return true;
  readable_ = (entries[0].revents & POLLIN) != 0;
  if ((entries[1].revents & POLLIN) != 0) outbox_.AcknowledgeWake();
  return false;
}

absl::Status ControlSession::Read(Handler& handler) {
  absl::Status malformed;
  ASSIGN_OR_RETURN(const auto end, channel_.Read(buffer_, 4, [&](std::string_view bytes, UniqueFd descriptor) {
    auto frame = ipc::ParseMessage<v1::DaemonFrame>(bytes, ipc::kDaemonShape);
    if (frame.ok() && descriptor.valid()) frame = Error(Reason::kProtocolError, "a descriptor came");
    malformed = frame.status();
    if (frame.ok()) handler.OnFrame(**frame);
    return malformed.ok();
  }));
  RETURN_IF_ERROR(malformed);
  if (end == ipc::FrameChannel::ReadEnd::kEof) return Error(Reason::kConnectionLost, "closed by the daemon");
  return absl::OkStatus();
}

absl::Status ControlSession::Flush() {
  for (std::string& frame : outbox_.Take()) channel_.Queue(std::move(frame));
  if (channel_.queued_bytes() == 0) return absl::OkStatus();
  const size_t before = channel_.queued_bytes();
  // An out-of-memory report on another thread is the process's last act: once it holds `busy`, this waits for the exit.
  while (writer_.busy.exchange(true)) sched_yield();
  absl::Status status = channel_.Flush();
  writer_.mid_frame.store(channel_.mid_write());
  writer_.busy.store(false);
  if (status.ok()) outbox_.Sent(before - channel_.queued_bytes());
  return status;
}

}  // namespace bulkhead::worker
