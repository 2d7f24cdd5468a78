#include "ipc/frame_socket.h"

#include <fmt/format.h>
#include <google/protobuf/message_lite.h>
#include <sys/socket.h>

#include "base/sys.h"
#include "ipc/frame_channel.h"

namespace bulkhead::ipc {
namespace {

// Reads per event: one peer that sends without end must not starve the others. The event comes again.
constexpr int kReadsPerEvent = 4;

absl::Status Closed() { return Error(Reason::kConnectionLost, "connection: closed"); }

}  // namespace

// Lives until both have let go of it: the FrameSocket, and libuv, which needs loop turns to close its handles.
struct FrameSocket::State {
  State(SocketLoop& socket_loop, UniqueFd fd, const Options& wanted, Listener* owner)
      : loop(socket_loop), options(wanted), listener(owner), channel(std::move(fd), wanted.max_frame_bytes) {}

  void OnPoll(int status, int events);
  void ReadFrames(int max_reads);
  void End(const absl::Status& why);
  void EndMalformed(const absl::Status& why);
  void AfterWrite();
  void Fail(absl::Status why);
  void UpdateEvents();
  void StartClosing();
  void OnHandleClosed();
  void LetGo();

  SocketLoop& loop;
  const Options options;
  Listener* listener;  // nullptr once closed
  FrameChannel channel;
  uv_poll_t poll = {};
  uv_timer_t timer = {};
  int watched_events = 0;
  int open_handles = 1;
  size_t told_buffered = 0;
  bool congested = false;
  bool flushing = false;  // CloseAfterFlush
  bool closing = false;
  bool held = true;      // by its FrameSocket
  absl::Status failure;  // of writing; told once what had arrived is read
};

absl::StatusOr<std::unique_ptr<FrameSocket>> FrameSocket::Create(SocketLoop& loop, UniqueFd fd, const Options& options,
                                                                 Listener* listener) {
  const int number = fd.get();
  auto state = std::make_unique<State>(loop, std::move(fd), options, listener);
  if (const int rc = uv_poll_init(loop.uv, &state->poll, number); rc < 0) {
    return ErrnoError(-rc, "uv_poll_init of a connection");
  }
  state->poll.data = state.get();
  State* raw = state.release();
  auto socket = std::unique_ptr<FrameSocket>(new FrameSocket(raw));
  raw->UpdateEvents();
  return socket;
}

FrameSocket::~FrameSocket() {
  if (state_ != nullptr) Close();
}

absl::Status FrameSocket::Send(const google::protobuf::MessageLite& message, UniqueFd descriptor) {
  if (!open()) return Closed();
  ASSIGN_OR_RETURN(std::string frame, EncodeFrame(message, kMaxDaemonFrame));
  return SendEncoded(std::move(frame), std::move(descriptor));
}

absl::Status FrameSocket::SendEncoded(std::string frame, UniqueFd descriptor) {
  if (!open()) return Closed();
  State& state = *state_;
  const size_t would_be = state.channel.queued_bytes() + frame.size();
  if (would_be > state.options.max_queued_bytes) {
    state.Fail(Error(Reason::kLimitExceeded, fmt::format("connection: {} bytes unread by the peer, limit {}", would_be,
                                                         state.options.max_queued_bytes)));
    return state.failure;
  }
  const bool was_empty = state.channel.queued_bytes() == 0;
  state.channel.Queue(std::move(frame), std::move(descriptor));
  if (was_empty) {
    if (absl::Status status = state.channel.Flush(); !status.ok()) {
      state.Fail(status);
      return status;
    }
  }
  state.UpdateEvents();
  if (!state.congested && state.channel.queued_bytes() > state.options.high_water) {
    state.congested = true;
    state.listener->OnCongested(true);
  }
  return absl::OkStatus();
}

void FrameSocket::Fail(absl::Status why) {
  if (open()) state_->Fail(std::move(why));
}

void FrameSocket::Close() {
  if (state_ == nullptr) return;
  State* state = state_;
  state_ = nullptr;
  state->listener = nullptr;
  state->StartClosing();
  state->LetGo();
}

void FrameSocket::CloseAfterFlush(uint64_t within_ms) {
  if (!open() || state_->channel.queued_bytes() == 0) return Close();
  State* state = state_;
  state_ = nullptr;
  state->listener = nullptr;
  state->held = false;
  state->flushing = true;
  if (uv_timer_init(state->loop.uv, &state->timer) == 0) {
    state->timer.data = state;
    ++state->open_handles;
    uv_timer_start(
        &state->timer, [](uv_timer_t* timer) { static_cast<State*>(timer->data)->StartClosing(); }, within_ms, 0);
  }
  state->UpdateEvents();
}

void FrameSocket::ReadAvailable(size_t max_bytes) {
  if (state_ == nullptr || state_->closing) return;
  state_->ReadFrames(static_cast<int>(max_bytes / kReadBufferBytes) + 1);
}

void FrameSocket::set_max_frame_bytes(uint32_t bytes) {
  if (state_ != nullptr) state_->channel.set_max_frame_bytes(bytes);
}

size_t FrameSocket::queued_bytes() const { return state_ == nullptr ? 0 : state_->channel.queued_bytes(); }
bool FrameSocket::congested() const { return state_ != nullptr && state_->congested; }
bool FrameSocket::open() const { return state_ != nullptr && !state_->closing && state_->failure.ok(); }
int FrameSocket::fd() const { return state_ == nullptr || state_->closing ? -1 : state_->channel.fd(); }

void FrameSocket::State::OnPoll(int status, int events) {
  if (closing) return;
  if (flushing) {
    const bool gone = status < 0 || (events & UV_DISCONNECT) != 0;
    if (gone || !channel.Flush().ok() || channel.queued_bytes() == 0) return StartClosing();
    return;
  }
  // A socket that hangs up or fails may still hold what was sent before: read first, then close.
  if (status < 0 || (events & (UV_READABLE | UV_DISCONNECT)) != 0) ReadFrames(kReadsPerEvent);
  if (flushing && status < 0) return StartClosing();
  if (closing || flushing) return;
  if ((events & UV_WRITABLE) != 0) AfterWrite();
  if (closing || flushing) return;
  if (status < 0) watched_events = 0;  // libuv has stopped watching
  UpdateEvents();
}

void FrameSocket::State::ReadFrames(int max_reads) {
  auto end = channel.Read(loop.read_buffer, max_reads, [this](std::string_view bytes, UniqueFd descriptor) {
    listener->OnFrame(bytes, std::move(descriptor));
    return listener != nullptr;
  });
  if (closing || flushing) return;
  if (!end.ok() && failure.ok()) return EndMalformed(end.status());
  if (!end.ok() || *end == FrameChannel::ReadEnd::kEof) return End(failure);
  if (*end == FrameChannel::ReadEnd::kWouldBlock && !failure.ok()) return End(failure);
  if (const size_t bytes = channel.buffered_bytes(); bytes != told_buffered) {
    told_buffered = bytes;
    listener->OnBuffered(bytes);
  }
}

void FrameSocket::State::EndMalformed(const absl::Status& why) {
  if (ReasonOf(why) != Reason::kConnectionLost) listener->OnMalformed(why);
  if (!closing && !flushing) End(why);
}

void FrameSocket::State::AfterWrite() {
  if (absl::Status status = channel.Flush(); !status.ok()) return Fail(std::move(status));
  if (congested && channel.queued_bytes() <= options.low_water) {
    congested = false;
    listener->OnCongested(false);
  }
  if (!closing && !flushing && channel.queued_bytes() == 0) listener->OnFlushed();
}

void FrameSocket::State::Fail(absl::Status why) {
  if (failure.ok()) failure = std::move(why);
  // The loop sees the hang-up, reads what has arrived, and ends the connection from there.
  (void)sys::Shutdown(channel.fd(), SHUT_RDWR);
}

void FrameSocket::State::End(const absl::Status& why) {
  Listener* owner = listener;
  listener = nullptr;
  const absl::Status reason = why;
  StartClosing();
  if (owner != nullptr) owner->OnClosed(reason);
}

void FrameSocket::State::UpdateEvents() {
  if (closing) return;
  int events = UV_DISCONNECT;
  if (!flushing) events |= UV_READABLE;
  if (channel.queued_bytes() > 0) events |= UV_WRITABLE;
  if (events == watched_events) return;
  watched_events = events;
  uv_poll_start(&poll, events, [](uv_poll_t* handle, int status, int ready) {
    static_cast<State*>(handle->data)->OnPoll(status, ready);
  });
}

void FrameSocket::State::StartClosing() {
  if (closing) return;
  closing = true;
  const auto on_closed = [](uv_handle_t* handle) { static_cast<State*>(handle->data)->OnHandleClosed(); };
  if (open_handles > 1) uv_close(reinterpret_cast<uv_handle_t*>(&timer), on_closed);
  uv_close(reinterpret_cast<uv_handle_t*>(&poll), on_closed);
}

void FrameSocket::State::OnHandleClosed() {
  if (--open_handles > 0) return;
  channel.ReleaseFd().Reset();
  if (!held) delete this;
}

// By the FrameSocket, as its last act here.
void FrameSocket::State::LetGo() {
  held = false;
  if (open_handles == 0) delete this;
}

}  // namespace bulkhead::ipc
