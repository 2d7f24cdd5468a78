#include "daemon/server.h"

#include <fmt/format.h>

#include <cerrno>
#include <utility>

#include "base/sys.h"
#include "daemon/log.h"
#include "daemon/reply.h"

namespace bulkhead::daemon {
namespace {

// Connections taken per event; the event comes again.
constexpr int kAcceptsPerEvent = 64;
// How long nobody is accepted after descriptors or memory ran out: the event would otherwise come at once again.
constexpr uint64_t kRestMs = 200;

// Says no to somebody who never became a session.
class RefusedPeer final : public ipc::FrameSocket::Listener {
 public:
  void OnFrame(std::string_view, UniqueFd) override {}
  void OnClosed(const absl::Status&) override {}
};

}  // namespace

struct Server::Poll {
  uv_poll_t poll = {};
  uv_timer_t rest = {};
  UniqueFd fd;
  Server* server = nullptr;
  int open_handles = 2;

  void Start() {
    uv_poll_start(&poll, UV_READABLE, [](uv_poll_t* handle, int, int) {
      auto* self = static_cast<Poll*>(handle->data);
      if (self->server != nullptr) self->server->AcceptSome();
    });
  }
  // The descriptor goes only after libuv has let go of it.
  void Close() {
    server = nullptr;
    const auto closed = [](uv_handle_t* handle) {
      auto* self = static_cast<Poll*>(handle->data);
      if (--self->open_handles == 0) delete self;
    };
    uv_close(reinterpret_cast<uv_handle_t*>(&poll), closed);
    uv_close(reinterpret_cast<uv_handle_t*>(&rest), closed);
  }
};

Server::~Server() {
  StopListening();
  sessions_.clear();
}

absl::Status Server::Listen(UniqueFd fd) {
  auto poll = std::make_unique<Poll>();
  if (const int error = uv_poll_init(services_.sockets.uv, &poll->poll, fd.get()); error < 0) {
    return ErrnoError(-error, "uv_poll_init of the listening socket");
  }
  uv_timer_init(services_.sockets.uv, &poll->rest);
  poll->fd = std::move(fd);
  poll->server = this;
  poll->poll.data = poll->rest.data = poll.get();
  poll_ = poll.release();
  poll_->Start();
  return absl::OkStatus();
}

void Server::StopListening() {
  if (poll_ != nullptr) std::exchange(poll_, nullptr)->Close();
}

void Server::AcceptSome() {
  for (int i = 0; i < kAcceptsPerEvent && poll_ != nullptr; ++i) {
    const int fd = sys::Accept(poll_->fd.get());
    if (fd == -EAGAIN || fd == -EWOULDBLOCK) return;
    if (fd == -EINTR || fd == -ECONNABORTED) continue;
    if (fd < 0) {
      // Said once, not at each of the tries that follow.
      if (!std::exchange(resting_, true)) LogWarning(Message(ErrnoError(-fd, "accept")));
      return RestLater();
    }
    resting_ = false;
    Serve(UniqueFd(fd));
  }
}

void Server::RestLater() {
  uv_poll_stop(&poll_->poll);
  uv_timer_start(
      &poll_->rest,
      [](uv_timer_t* timer) {
        auto* poll = static_cast<Poll*>(timer->data);
        if (poll->server != nullptr) poll->Start();
      },
      kRestMs, 0);
}

void Server::Serve(UniqueFd fd) {
  auto peer = ipc::ReadPeerCredentials(fd.get());
  if (!peer.ok()) return LogWarning(Message(peer.status()));
  Serve(std::move(fd), *std::move(peer));
}

void Server::Serve(UniqueFd fd, ipc::PeerCredentials peer) {
  if (absl::Status scarce = services_.descriptors.CheckConnection(fd.get()); !scarce.ok()) {
    return Refuse(std::move(fd), scarce);
  }
  const Config::Limits& limits = services_.control.loaded().config.limits;
  if (sessions_.size() >= limits.connections) {
    return Refuse(std::move(fd),
                  Error(Reason::kLimitExceeded, fmt::format("{} connections are open, the limit", limits.connections)));
  }
  auto share = services_.uids.Take(peer.uid, UidResource::kConnections, 1, limits.connections_per_uid);
  if (!share.ok()) return Refuse(std::move(fd), share.status());
  LogDebug(fmt::format("connection from pid {} uid {}", peer.pid, peer.uid));
  auto session = Session::Start(services_, std::move(fd), std::move(peer), *std::move(share),
                                [this](Session* ended) { sessions_.erase(ended); });
  if (!session.ok()) return LogWarning(Message(session.status()));
  sessions_.emplace(session->get(), *session);
}

void Server::Refuse(UniqueFd fd, const absl::Status& why) {
  static RefusedPeer nobody;
  auto socket = ipc::FrameSocket::Create(services_.sockets, std::move(fd), {}, &nobody);
  if (!socket.ok()) return;
  v1::ServerFrame frame;
  Fill(frame.mutable_error(), why);
  (void)(*socket)->Send(frame);
  (*socket)->CloseAfterFlush();
}

void Server::FinishSessions() {
  std::vector<std::shared_ptr<Session>> all;
  for (const auto& [key, session] : sessions_) all.push_back(session);
  for (const std::shared_ptr<Session>& session : all) session->Finish();
}

}  // namespace bulkhead::daemon
