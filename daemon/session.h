// One client's connection: its Hello, its open requests, and exactly one terminal frame for each. A malformed frame
// ends the connection with a reason; nothing a client sends ends anything else. Loop thread only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "bulkhead/v1/client.pb.h"
#include "daemon/access.h"
#include "daemon/catalogue.h"
#include "daemon/control.h"
#include "daemon/descriptor_reserve.h"
#include "daemon/event_hub.h"
#include "daemon/inference_table.h"
#include "ipc/frame_socket.h"
#include "ipc/peer.h"
#include "supervisor/offload.h"

namespace bulkhead::daemon {

// What all sessions share; outlives them.
struct Services {
  ipc::SocketLoop& sockets;
  const Clock& clock;
  supervisor::LocalGenerationOffload& offload;
  Catalogue& catalogue;
  InferenceTable& inferences;
  UidLedger& uids;
  EventHub& events;
  Control& control;
  DescriptorReserve descriptors = {};
};

inline constexpr uint32_t kProtocolVersion = 1;

class Session final : public ipc::FrameSocket::Listener, public std::enable_shared_from_this<Session> {
 public:
  // `ended` is called once, when the connection is over; it may drop the last owner.
  static absl::StatusOr<std::shared_ptr<Session>> Start(Services& services, UniqueFd fd, ipc::PeerCredentials peer,
                                                        UidShare connection, std::function<void(Session*)> ended);
  ~Session() override;

  // Says why and ends the connection once that was sent.
  void End(const absl::Status& why);
  // Ends the connection once everything queued was sent.
  void Finish();
  [[nodiscard]] size_t open_requests() const { return open_.size(); }

  void OnFrame(std::string_view bytes, UniqueFd descriptor) override;
  void OnClosed(const absl::Status& why) override;
  void OnMalformed(const absl::Status& why) override { End(why); }
  void OnCongested(bool congested) override;
  void OnFlushed() override;
  void OnBuffered(size_t bytes) override;

 private:
  // Names one open request; the serial tells it from an earlier one of the same id.
  struct Ref {
    uint64_t id = 0;
    uint64_t serial = 0;
  };
  class Request;
  struct PendingGenerate;
  struct PendingRelease;
  struct ReceivedFrame {
    const v1::ClientFrame& frame;
    size_t bytes;
    UniqueFd descriptor;
  };

  Session(Services& services, ipc::PeerCredentials peer, UidShare connection, std::function<void(Session*)> ended);

  // session.cc: the connection and its requests.
  void OnHello(const v1::ClientFrame& frame);
  void OnRequest(ReceivedFrame& received);
  absl::StatusOr<Ref> OpenRequest(uint64_t id);
  void Dispatch(Ref ref, ReceivedFrame& received);
  [[nodiscard]] Request* Find(Ref ref);
  void CloseRequest(uint64_t id);
  void Send(v1::ServerFrame& frame, uint64_t request_id);
  void Reply(Ref ref, v1::ServerFrame frame);
  void Fail(Ref ref, const absl::Status& status);
  void Over();
  void PumpAll();
  // Whether this client, or its user over all of his connections, has too much to read already.
  [[nodiscard]] bool Congested() const;
  [[nodiscard]] bool IsAdmin() const { return services_.control.access().IsAdmin(peer_); }
  absl::Status RequireAdmin(std::string_view what) const;
  // Whether this user may see what belongs to `model`: others' passed files are nobody's business.
  [[nodiscard]] bool MaySee(const std::string& model) const;
  [[nodiscard]] bool OwnsPassed(const std::string& model) const;

  // A callback that does nothing once the request is closed or the session gone.
  template <typename F>
  auto Guarded(Ref ref, F function) {
    return [weak = weak_from_this(), ref, function = std::move(function)](auto&&... arguments) {
      const std::shared_ptr<Session> self = weak.lock();
      if (self && self->Find(ref) != nullptr) function(*self, std::forward<decltype(arguments)>(arguments)...);
    };
  }

  // session_generate.cc: generations.
  void OnGenerate(Ref ref, ReceivedFrame& received);
  void LookUpKey(Ref ref, std::shared_ptr<PendingGenerate> pending);
  void LookUpModel(Ref ref, std::shared_ptr<PendingGenerate> pending);
  void StartGenerate(Ref ref, PendingGenerate& pending);
  void OnAttach(Ref ref, const v1::AttachRequest& request);
  void ListenTo(Ref ref, std::shared_ptr<Inference> inference, uint64_t from_index);
  void OnCancel(Ref ref, const v1::CancelRequest& request);
  bool CancelOwn(uint64_t request_id);
  absl::StatusOr<bool> CancelById(const std::string& inference_id);
  void OnTerminate(Ref ref, const v1::TerminateRequest& request);
  void OnGrant(const v1::Grant& grant);

  // session_models.cc: models.
  using ModelReady = std::function<void(Session&, supervisor::ModelSource)>;
  void WithModel(Ref ref, const v1::ModelRef& model, UniqueFd descriptor, ModelReady ready);
  void OnLoad(Ref ref, ReceivedFrame& received);
  void OnRelease(Ref ref, const v1::ReleaseRequest& request);
  void ReleaseIdle(Ref ref, Duration idle_for);
  void OnModels(Ref ref);
  void OnShow(Ref ref, ReceivedFrame& received);
  void OnPreflight(Ref ref, ReceivedFrame& received);
  void OnTokenize(Ref ref, ReceivedFrame& received);
  void OnUnblock(Ref ref, const v1::UnblockRequest& request);

  // session_control.cc: the daemon itself.
  void OnPs(Ref ref, const v1::PsRequest& request);
  void AnswerPs(Ref ref, const v1::PsRequest& request);
  void OnDeaths(Ref ref, const v1::DeathsRequest& request);
  void OnPolicy(Ref ref, const v1::PolicyRequest& request);
  void OnDoctor(Ref ref);
  void OnEvents(Ref ref, const v1::EventsRequest& request);
  void SendEvent(Ref ref, const supervisor::LifecycleEvent& event);
  void OnReload(Ref ref);

  Services& services_;
  const ipc::PeerCredentials peer_;
  UidShare connection_;
  UidShare buffered_;
  UidShare queued_;
  std::function<void(Session*)> ended_;
  std::unique_ptr<ipc::FrameSocket> socket_;
  bool greeted_ = false;
  uint64_t last_serial_ = 0;
  std::map<uint64_t, std::unique_ptr<Request>> open_;
};

}  // namespace bulkhead::daemon
