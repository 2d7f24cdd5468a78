#include "client/connection.h"

#include <fmt/format.h>
#include <uv.h>

#include <algorithm>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "base/build_id.h"
#include "base/status.h"
#include "base/sys.h"
#include "bulkhead/v1/client.pb.h"
#include "ipc/frame.h"
#include "ipc/frame_socket.h"
#include "ipc/message.h"
#include "ipc/unix_address.h"

namespace bulkhead::client {
namespace {

constexpr uint32_t kProtocolVersion = 1;
// A listener's queue drains within milliseconds; the loop is free meanwhile.
constexpr uint64_t kConnectRetryMs = 5;
constexpr uint64_t kConnectPatienceMs = 10'000;
// How long a daemon that went away is waited for, and how often it is tried.
constexpr uint64_t kReturnPatienceMs = 30'000;
constexpr uint64_t kReturnRetryMs = 20;
// What a daemon says whose requests outlive it.
constexpr std::string_view kOutlive = "outlive";

v1::ServerFrame ErrorFrame(uint64_t request_id, const absl::Status& status) {
  v1::ServerFrame frame;
  frame.set_request_id(request_id);
  *frame.mutable_error() = ErrorEventOf(status);
  return frame;
}

absl::Status ConnectError(const std::string& path, int error) {
  char buffer[128];
  const Reason reason = error == EACCES || error == EPERM ? Reason::kPermissionDenied : Reason::kDaemonUnreachable;
  return Error(reason, fmt::format("socket {}: {}", path, strerror_r(error, buffer, sizeof(buffer))));
}

}  // namespace

// Lives from Open until both its own handle and its socket's have been closed by the loop, which may be after the
// Connection is gone.
class Connection::Impl final : public ipc::FrameSocket::Listener {
 public:
  Impl(uv_loop_t* loop, std::string path) : sockets_(loop), path_(std::move(path)) {
    uv_timer_init(loop, &timer_);
    timer_.data = this;
  }

  absl::Status Start() {
    ASSIGN_OR_RETURN(address_, ipc::MakeUnixAddress(path_));
    const int fd = sys::Socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fd < 0) return ErrnoError(-fd, "socket");
    connecting_.Reset(fd);
    QueueHello();
    connect_until_ = uv_now(sockets_.uv) + kConnectPatienceMs;
    return TryConnect();
  }

  void QueueHello() {
    v1::ClientFrame frame;
    frame.mutable_hello()->set_protocol_min(kProtocolVersion);
    frame.mutable_hello()->set_protocol_max(kProtocolVersion);
    frame.mutable_hello()->set_build(std::string(BuildId()));
    waiting_.push_back({0, ipc::EncodeFrame(frame).value(), UniqueFd()});
  }

  // OK also where the listener's queue is full: the timer tries again.
  absl::Status TryConnect() {
    const int result = sys::Connect(connecting_.get(), address_.get(), address_.size);
    if (result == 0) return Connected();
    if ((result == -EAGAIN || result == -EINTR) && uv_now(sockets_.uv) < connect_until_) {
      uv_timer_start(
          &timer_, [](uv_timer_t* timer) { static_cast<Impl*>(timer->data)->OnTimer(); }, kConnectRetryMs, 0);
      return absl::OkStatus();
    }
    return ConnectError(path_, -result);
  }

  absl::Status Connected() {
    // The daemon is trusted with its own replies: the hard cap is the only one.
    ipc::FrameSocket::Options options;
    options.max_frame_bytes = ipc::kHardMaxFrame;
    ASSIGN_OR_RETURN(socket_, ipc::FrameSocket::Create(sockets_, std::move(connecting_), options, this));
    for (Waiting& request : std::exchange(waiting_, {})) {
      Transmit(request.id, std::move(request.frame), std::move(request.descriptor));
    }
    return absl::OkStatus();
  }

  uint64_t Send(v1::ClientFrame frame, UniqueFd descriptor, FrameSink sink) {
    const uint64_t id = next_id_++;
    frame.set_request_id(id);
    OpenRequest& open = open_[id];
    open.sink = std::make_shared<FrameSink>(std::move(sink));
    auto encoded = ipc::EncodeFrame(frame);
    if (!encoded.ok()) {
      FailLater(id, encoded.status());
    } else {
      // A passed file is gone with the daemon that had it.
      open.resumes = frame.has_generate() && !descriptor.valid() &&
                     frame.generate().on_worker_death() == v1::ON_WORKER_DEATH_RESUME;
      if (open.resumes) open.frame = *encoded;
      Transmit(id, *std::move(encoded), std::move(descriptor));
    }
    return id;
  }

  void Cancel(uint64_t target) {
    if (!open_.contains(target)) return;
    v1::ClientFrame frame;
    frame.mutable_cancel()->set_target_request_id(target);
    Send(std::move(frame), {}, [](const v1::ServerFrame&) {});
  }

  // Ends everything without a word; the object deletes itself once the loop has let go of it.
  void Close() {
    closed_ = true;
    open_.clear();
    socket_.reset();
    timer_.data = this;
    uv_close(reinterpret_cast<uv_handle_t*>(&timer_), [](uv_handle_t* handle) {
      // The socket's handles close in this same turn of the loop, in no promised order; one turn later they have.
      auto* self = static_cast<Impl*>(handle->data);
      uv_timer_init(self->sockets_.uv, &self->timer_);
      uv_close(handle, [](uv_handle_t* again) { delete static_cast<Impl*>(again->data); });
    });
  }

  void OnFrame(std::string_view bytes, UniqueFd descriptor) override {
    descriptor.Reset();  // the daemon sends none
    auto frame = ipc::ParseMessage<v1::ServerFrame>(bytes);
    if (!frame.ok()) {
      socket_.reset();
      OnClosed(frame.status());
      return;
    }
    if ((*frame)->request_id() == 0) {
      OnConnectionFrame(**frame);
    } else {
      Deliver(**frame);
    }
  }

  void OnClosed(const absl::Status& why) override {
    socket_.reset();
    if (failure_.ok() && outlives_ && MayReturn(why)) {
      WaitForReturn();
      return;
    }
    Lost(why);
  }

  void Lost(const absl::Status& why) {
    if (failure_.ok()) {
      failure_ =
          why.ok() ? Error(Reason::kConnectionLost, "the daemon closed the connection before it had answered") : why;
    }
    // A sink may send anew from in here; what it sends fails from the loop's next turn, not in this one.
    std::vector<uint64_t> ids;
    for (const auto& [id, open] : open_) ids.push_back(id);
    for (const uint64_t id : ids) {
      if (closed_) return;
      Deliver(ErrorFrame(id, failure_));
    }
  }

  [[nodiscard]] const v1::Hello* hello() const { return hello_ == nullptr ? nullptr : hello_.get(); }
  [[nodiscard]] size_t open_requests() const { return open_.size(); }

 private:
  struct OpenRequest {
    std::shared_ptr<FrameSink> sink;
    bool resumes = false;
    std::string frame;  // to be said again while nothing has begun
    std::string inference_id;
    uint64_t next_index = 0;  // tokens received
    bool tail = false;        // text without tokens was received at next_index
    bool attached = false;    // since the daemon came back
  };
  struct Waiting {
    uint64_t id;
    std::string frame;
    UniqueFd descriptor;
  };

  static bool MayReturn(const absl::Status& why) { return why.ok() || ReasonOf(why) == Reason::kConnectionLost; }

  // The daemon is gone without a word. Requests that outlive it are taken up when it is back; the others are over.
  void WaitForReturn() {
    std::vector<uint64_t> over;
    for (const auto& [id, open] : open_) {
      if (!open.resumes) over.push_back(id);
    }
    for (const uint64_t id : over) {
      if (closed_) return;
      Deliver(
          ErrorFrame(id, Error(Reason::kConnectionLost, "the daemon closed the connection before it had answered")));
    }
    if (closed_) return;
    hello_.reset();
    return_until_ = uv_now(sockets_.uv) + kReturnPatienceMs;
    returning_ = true;
    TryReturn();
  }

  void TryReturn() {
    const int fd = sys::Socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    int result = fd;
    if (fd >= 0) {
      UniqueFd socket(fd);
      result = sys::Connect(fd, address_.get(), address_.size);
      if (result == 0) {
        returning_ = false;
        connecting_ = std::move(socket);
        TakeUp();
        if (const absl::Status connected = Connected(); !connected.ok()) Lost(connected);
        return;
      }
    }
    if (uv_now(sockets_.uv) >= return_until_) {
      returning_ = false;
      waiting_.clear();
      Lost(Error(Reason::kConnectionLost,
                 fmt::format("the daemon ended and did not come back within {} s", kReturnPatienceMs / 1000)));
      return;
    }
    uv_timer_start(
        &timer_, [](uv_timer_t* timer) { static_cast<Impl*>(timer->data)->OnTimer(); }, kReturnRetryMs, 0);
  }

  // Hello, then every open request again, ahead of what was asked meanwhile.
  void TakeUp() {
    std::deque<Waiting> later = std::exchange(waiting_, {});
    QueueHello();
    for (auto& [id, open] : open_) {
      const bool queued =
          std::any_of(later.begin(), later.end(), [&, own = id](const Waiting& w) { return w.id == own; });
      if (!open.resumes || queued) continue;
      if (open.inference_id.empty()) {
        waiting_.push_back({id, open.frame, UniqueFd()});
        continue;
      }
      open.attached = true;
      v1::ClientFrame frame;
      frame.set_request_id(id);
      frame.mutable_attach()->set_inference_id(open.inference_id);
      frame.mutable_attach()->set_from_index(open.next_index);
      waiting_.push_back({id, ipc::EncodeFrame(frame).value(), UniqueFd()});
    }
    for (Waiting& request : later) waiting_.push_back(std::move(request));
  }

  // False where the client has had this frame before the daemon ended.
  bool Follow(OpenRequest& open, const v1::ServerFrame& frame) {
    if (!open.resumes) return true;
    if (frame.has_started()) {
      const bool first = open.inference_id.empty();
      open.inference_id = frame.started().inference_id();
      open.frame.clear();
      return first;
    }
    // Before it started there is nothing that could go on; should the daemon end now it is asked for anew.
    if (frame.has_resumed()) return !open.inference_id.empty();
    if (!frame.has_delta()) return true;
    const v1::Delta& delta = frame.delta();
    const uint64_t end = delta.index() + static_cast<uint64_t>(delta.tokens_size());
    if (end < open.next_index || (delta.tokens_size() > 0 && end == open.next_index)) return false;
    if (delta.tokens_size() == 0 && std::exchange(open.tail, true)) return false;
    if (delta.tokens_size() > 0) open.tail = false;
    open.next_index = end;
    return true;
  }

  void Transmit(uint64_t id, std::string frame, UniqueFd descriptor) {
    if (connecting_.valid() || returning_) {
      waiting_.push_back({id, std::move(frame), std::move(descriptor)});
      return;
    }
    absl::Status sent = failure_.ok() ? absl::OkStatus() : failure_;
    if (sent.ok() && socket_ == nullptr) sent = Error(Reason::kConnectionLost, "the connection is closed");
    if (sent.ok()) {
      sent = socket_->SendEncoded(std::move(frame), std::move(descriptor));
      // OnClosed follows, with the daemon's last word where it sent one before it closed.
      if (ReasonOf(sent) == Reason::kConnectionLost) return;
    }
    if (!sent.ok() && id != 0) FailLater(id, sent);
  }

  void FailLater(uint64_t id, absl::Status why) {
    late_.emplace_back(id, std::move(why));
    if (!connecting_.valid() && !returning_) {
      uv_timer_start(
          &timer_, [](uv_timer_t* timer) { static_cast<Impl*>(timer->data)->OnTimer(); }, 0, 0);
    }
  }

  void OnTimer() {
    if (returning_) return TryReturn();
    if (connecting_.valid()) {
      if (absl::Status status = TryConnect(); !status.ok()) {
        connecting_.Reset();
        waiting_.clear();
        OnClosed(status);
        return;
      }
    }
    for (auto& [id, why] : std::exchange(late_, {})) {
      if (closed_) return;
      Deliver(ErrorFrame(id, why));
    }
  }

  void OnConnectionFrame(const v1::ServerFrame& frame) {
    if (frame.has_hello()) {
      hello_ = std::make_unique<v1::Hello>(frame.hello());
      const auto& told = frame.hello().capabilities();
      outlives_ = std::find(told.begin(), told.end(), kOutlive) != told.end();
    }
    // What ends the connection; the daemon closes it next.
    if (frame.has_error()) failure_ = StatusOf(frame.error());
  }

  void Deliver(const v1::ServerFrame& frame) {
    const auto found = open_.find(frame.request_id());
    if (found == open_.end()) return;
    if (!Follow(found->second, frame)) return;
    const std::shared_ptr<FrameSink> sink = found->second.sink;
    const bool forgotten =
        found->second.attached && frame.has_error() && frame.error().reason() == v1::REASON_INFERENCE_NOT_FOUND;
    const std::string inference = found->second.inference_id;
    if (IsTerminal(frame)) open_.erase(found);
    if (!*sink) return;
    if (forgotten) {
      (*sink)(ErrorFrame(
          frame.request_id(),
          Error(Reason::kConnectionLost, fmt::format("the daemon was restarted and has no record of {}", inference))));
    } else {
      (*sink)(frame);
    }
  }

  ipc::SocketLoop sockets_;
  std::string path_;
  ipc::UnixAddress address_;
  uv_timer_t timer_;
  UniqueFd connecting_;  // until the listener took it
  uint64_t connect_until_ = 0;
  std::unique_ptr<ipc::FrameSocket> socket_;
  std::unique_ptr<v1::Hello> hello_;
  std::map<uint64_t, OpenRequest> open_;
  std::deque<Waiting> waiting_;
  std::vector<std::pair<uint64_t, absl::Status>> late_;
  absl::Status failure_;
  uint64_t next_id_ = 1;
  bool closed_ = false;
  bool outlives_ = false;   // the daemon said that its requests outlive it
  bool returning_ = false;  // it is gone, and waited for
  uint64_t return_until_ = 0;
};

Connection::Connection(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Connection::~Connection() { impl_.release()->Close(); }

absl::StatusOr<std::unique_ptr<Connection>> Connection::Open(uv_loop_s* loop, const std::string& path) {
  // From here on the loop knows the Impl, so even a failure is cleaned up by way of ~Connection.
  auto connection = std::unique_ptr<Connection>(new Connection(std::make_unique<Impl>(loop, path)));
  RETURN_IF_ERROR(connection->impl_->Start());
  return connection;
}

uint64_t Connection::Send(v1::ClientFrame frame, UniqueFd descriptor, FrameSink sink) {
  return impl_->Send(std::move(frame), std::move(descriptor), std::move(sink));
}

void Connection::Cancel(uint64_t request_id) { impl_->Cancel(request_id); }
const v1::Hello* Connection::server_hello() const { return impl_->hello(); }
size_t Connection::open_requests() const { return impl_->open_requests(); }

bool IsTerminal(const v1::ServerFrame& frame) {
  switch (frame.kind_case()) {
    case v1::ServerFrame::KIND_NOT_SET:
    case v1::ServerFrame::kHello:
    case v1::ServerFrame::kQueued:
    case v1::ServerFrame::kLoading:
    case v1::ServerFrame::kStarted:
    case v1::ServerFrame::kDelta:
    case v1::ServerFrame::kResumed:
    case v1::ServerFrame::kEvent:
      return false;
    default:
      return true;
  }
}

absl::Status StatusOf(const v1::ErrorEvent& event) {
  return Error(static_cast<Reason>(event.reason()), event.message());
}

v1::ErrorEvent ErrorEventOf(const absl::Status& status) {
  const ReasonInfo& info = InfoOf(ReasonOf(status));
  v1::ErrorEvent event;
  event.set_code(static_cast<uint32_t>(info.code));
  event.set_reason(static_cast<v1::Reason>(info.reason));
  event.set_message(Message(status));
  event.set_retryable(info.retryable);
  return event;
}

}  // namespace bulkhead::client
