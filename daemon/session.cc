#include "daemon/session.h"

#include <fmt/format.h>

#include "base/build_id.h"
#include "base/numerics_version.h"
#include "daemon/log.h"
#include "daemon/reply.h"
#include "daemon/session_request.h"
#include "ipc/message.h"

namespace bulkhead::daemon {

Session::Request::~Request() {
  if (inference) std::exchange(inference, nullptr)->Detach();
  if (!load_id.empty()) session_.services_.offload.Cancel(load_id, supervisor::CancelCause::kClientGone);
  if (subscription != 0) session_.services_.events.Unsubscribe(subscription);
}

void Session::Request::Finished() {
  inference.reset();
  session_.CloseRequest(ref_.id);
}

void Session::Request::Replaced() {
  inference.reset();
  session_.Fail(ref_, Error(Reason::kCancelled, "another connection of the same user listens to this inference now"));
}

Session::Session(Services& services, ipc::PeerCredentials peer, UidShare connection,
                 std::function<void(Session*)> ended)
    : services_(services), peer_(std::move(peer)), connection_(std::move(connection)), ended_(std::move(ended)) {}

Session::~Session() {
  socket_.reset();
  open_.clear();
}

absl::StatusOr<std::shared_ptr<Session>> Session::Start(Services& services, UniqueFd fd, ipc::PeerCredentials peer,
                                                        UidShare connection, std::function<void(Session*)> ended) {
  auto session =
      std::shared_ptr<Session>(new Session(services, std::move(peer), std::move(connection), std::move(ended)));
  ipc::FrameSocket::Options options;
  options.max_frame_bytes = ipc::kMaxControlFrame;
  ASSIGN_OR_RETURN(session->socket_, ipc::FrameSocket::Create(services.sockets, std::move(fd), options, session.get()));
  return session;
}

void Session::OnFrame(std::string_view bytes, UniqueFd descriptor) {
  const std::shared_ptr<Session> self = shared_from_this();
  buffered_.Reset();
  const auto frame = ipc::ParseMessage<v1::ClientFrame>(bytes);
  if (!frame.ok()) return End(frame.status());
  if (!greeted_) return OnHello(**frame);
  ReceivedFrame received{**frame, bytes.size(), std::move(descriptor)};
  OnRequest(received);
}

void Session::OnHello(const v1::ClientFrame& frame) {
  if (frame.kind_case() != v1::ClientFrame::kHello) {
    return End(Error(Reason::kProtocolError, "the first frame of a connection is Hello"));
  }
  v1::ServerFrame reply;
  v1::Hello* hello = reply.mutable_hello();
  hello->set_protocol_min(kProtocolVersion);
  hello->set_protocol_max(kProtocolVersion);
  hello->set_build(std::string(BuildId()));
  hello->set_numerics(kNumericsVersion);
  hello->add_capabilities("attach");
  hello->add_capabilities("resume");
  if (services_.inferences.outlives()) hello->add_capabilities("outlive");
  hello->set_degraded(services_.control.degraded());
  Send(reply, 0);
  if (frame.hello().protocol_min() > kProtocolVersion || frame.hello().protocol_max() < kProtocolVersion) {
    return End(Error(Reason::kProtocolError,
                     fmt::format("protocol versions {} to {} offered, {} spoken here", frame.hello().protocol_min(),
                                 frame.hello().protocol_max(), kProtocolVersion)));
  }
  greeted_ = true;
  socket_->set_max_frame_bytes(static_cast<uint32_t>(services_.control.loaded().config.limits.request_bytes));
}

void Session::OnRequest(ReceivedFrame& received) {
  const v1::ClientFrame& frame = received.frame;
  if (frame.kind_case() == v1::ClientFrame::kHello) return End(Error(Reason::kProtocolError, "a second Hello"));
  if (frame.kind_case() == v1::ClientFrame::kGrant) return OnGrant(frame.grant());
  if (frame.request_id() == 0) return End(Error(Reason::kProtocolError, "request_id: 0 names no request"));
  if (open_.contains(frame.request_id())) {
    return End(Error(Reason::kProtocolError, fmt::format("request_id: {} is open already", frame.request_id())));
  }
  const auto ref = OpenRequest(frame.request_id());
  if (!ref.ok()) {
    v1::ServerFrame refusal;
    Fill(refusal.mutable_error(), ref.status());
    return Send(refusal, frame.request_id());
  }
  Dispatch(*ref, received);
}

absl::StatusOr<Session::Ref> Session::OpenRequest(uint64_t id) {
  const uint32_t limit = services_.control.loaded().config.limits.in_flight_per_uid;
  ASSIGN_OR_RETURN(UidShare slot, services_.uids.Take(peer_.uid, UidResource::kInFlight, 1, limit));
  const Ref ref{id, ++last_serial_};
  open_.emplace(id, std::make_unique<Request>(*this, ref, std::move(slot)));
  return ref;
}

void Session::Dispatch(Ref ref, ReceivedFrame& received) {
  const v1::ClientFrame& frame = received.frame;
  switch (frame.kind_case()) {
    case v1::ClientFrame::kGenerate:
      return OnGenerate(ref, received);
    case v1::ClientFrame::kCancel:
      return OnCancel(ref, frame.cancel());
    case v1::ClientFrame::kTerminate:
      return OnTerminate(ref, frame.terminate());
    case v1::ClientFrame::kAttach:
      return OnAttach(ref, frame.attach());
    case v1::ClientFrame::kLoad:
      return OnLoad(ref, received);
    case v1::ClientFrame::kRelease:
      return OnRelease(ref, frame.release());
    case v1::ClientFrame::kPs:
      return OnPs(ref, frame.ps());
    case v1::ClientFrame::kModels:
      return OnModels(ref);
    case v1::ClientFrame::kShow:
      return OnShow(ref, received);
    case v1::ClientFrame::kPreflight:
      return OnPreflight(ref, received);
    case v1::ClientFrame::kTokenize:
      return OnTokenize(ref, received);
    case v1::ClientFrame::kDeaths:
      return OnDeaths(ref, frame.deaths());
    case v1::ClientFrame::kPolicy:
      return OnPolicy(ref, frame.policy());
    case v1::ClientFrame::kUnblock:
      return OnUnblock(ref, frame.unblock());
    case v1::ClientFrame::kDoctor:
      return OnDoctor(ref);
    case v1::ClientFrame::kEvents:
      return OnEvents(ref, frame.events());
    case v1::ClientFrame::kReload:
      return OnReload(ref);
    default:
      return Fail(ref, Error(Reason::kUnimplemented, "this kind of request is not known to this daemon"));
  }
}

Session::Request* Session::Find(Ref ref) {
  const auto found = open_.find(ref.id);
  return found != open_.end() && found->second->ref().serial == ref.serial ? found->second.get() : nullptr;
}

void Session::CloseRequest(uint64_t id) {
  const auto found = open_.find(id);
  if (found == open_.end()) return;
  // Out of the map first: letting go of it may come back here.
  const std::unique_ptr<Request> closed = std::move(found->second);
  open_.erase(found);
}

void Session::Send(v1::ServerFrame& frame, uint64_t request_id) {
  if (socket_ == nullptr) return;
  frame.set_request_id(request_id);
  // A connection that failed says so itself, through OnClosed.
  (void)socket_->Send(frame);
  // While the client keeps up, nothing is queued and nothing is counted.
  const size_t queued = socket_->queued_bytes();
  if (queued == 0 && !queued_.held()) return;
  queued_.Reset();
  if (queued == 0) return;
  auto share = services_.uids.Take(peer_.uid, UidResource::kQueuedBytes, queued,
                                   services_.control.loaded().config.limits.queued_bytes_per_uid);
  if (share.ok()) {
    queued_ = *std::move(share);
  } else {
    socket_->Fail(share.status());
  }
}

bool Session::Congested() const {
  if (socket_ == nullptr || socket_->congested()) return true;
  // Half of the limit is left for replies, which cannot wait.
  return socket_->queued_bytes() > 0 && services_.uids.Held(peer_.uid, UidResource::kQueuedBytes) >
                                            services_.control.loaded().config.limits.queued_bytes_per_uid / 2;
}

void Session::Reply(Ref ref, v1::ServerFrame frame) {
  if (Find(ref) == nullptr) return;
  Send(frame, ref.id);
  CloseRequest(ref.id);
}

void Session::Fail(Ref ref, const absl::Status& status) {
  v1::ServerFrame frame;
  Fill(frame.mutable_error(), status);
  Reply(ref, std::move(frame));
}

absl::Status Session::RequireAdmin(std::string_view what) const {
  if (IsAdmin()) return absl::OkStatus();
  return Error(Reason::kPermissionDenied,
               fmt::format("{}: uid {} is neither root, the daemon's user nor in the admin group", what, peer_.uid));
}

bool Session::OwnsPassed(const std::string& model) const { return model.starts_with(fmt::format("fd:{}:", peer_.uid)); }

bool Session::MaySee(const std::string& model) const {
  return IsAdmin() || !model.starts_with("fd:") || OwnsPassed(model);
}

void Session::OnCongested(bool) { PumpAll(); }

void Session::OnFlushed() {
  queued_.Reset();
  PumpAll();
}

void Session::PumpAll() {
  const std::shared_ptr<Session> self = shared_from_this();
  std::vector<std::shared_ptr<Inference>> listening;
  for (const auto& [id, request] : open_) {
    if (request->inference) listening.push_back(request->inference);
  }
  for (const std::shared_ptr<Inference>& inference : listening) inference->Pump();
}

void Session::OnBuffered(size_t bytes) {
  buffered_.Reset();
  if (bytes == 0) return;
  auto share = services_.uids.Take(peer_.uid, UidResource::kReceivedBytes, bytes,
                                   services_.control.loaded().config.limits.received_bytes_per_uid);
  if (!share.ok()) return End(share.status());
  buffered_ = *std::move(share);
}

void Session::OnClosed(const absl::Status& why) {
  const std::shared_ptr<Session> self = shared_from_this();
  if (ReasonOf(why) == Reason::kLimitExceeded) {
    LogWarning(fmt::format("connection of pid {} uid {} ended: {}", peer_.pid, peer_.uid, Message(why)));
  }
  Over();
}

void Session::End(const absl::Status& why) {
  const std::shared_ptr<Session> self = shared_from_this();
  LogWarning(fmt::format("connection of pid {} uid {} ended: {}", peer_.pid, peer_.uid, NameOf(ReasonOf(why))));
  v1::ServerFrame frame;
  Fill(frame.mutable_error(), why);
  Send(frame, 0);
  // A last word is worth flushing; what would be held for a peer that does not read, uncounted, is not.
  if (socket_ != nullptr && socket_->queued_bytes() > ipc::kOutputHighWater) socket_->Close();
  Finish();
}

void Session::Finish() {
  const std::shared_ptr<Session> self = shared_from_this();
  if (socket_ != nullptr) socket_->CloseAfterFlush();
  Over();
}

void Session::Over() {
  socket_.reset();
  buffered_.Reset();
  queued_.Reset();
  while (!open_.empty()) CloseRequest(open_.begin()->first);
  if (ended_) std::exchange(ended_, nullptr)(this);
}

}  // namespace bulkhead::daemon
