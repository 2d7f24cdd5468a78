// The listening socket and the sessions it begot. Loop thread only.
#pragma once

#include <uv.h>

#include <functional>
#include <memory>
#include <set>
#include <unordered_map>

#include "base/fd.h"
#include "base/status.h"
#include "daemon/session.h"

namespace bulkhead::daemon {

class Server {
 public:
  explicit Server(Services& services) : services_(services) {}
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Takes over a listening, non-blocking socket.
  absl::Status Listen(UniqueFd fd);
  // Accepts nobody any more.
  void StopListening();
  // Ends every session once what is queued for it was sent.
  void FinishSessions();

  // Takes over one connected socket; refusals are sent to the peer.
  void Serve(UniqueFd fd);
  // The same for somebody who is known already.
  void Serve(UniqueFd fd, ipc::PeerCredentials peer);

  [[nodiscard]] size_t sessions() const { return sessions_.size(); }

 private:
  struct Poll;

  void AcceptSome();
  void RestLater();
  void Refuse(UniqueFd fd, const absl::Status& why);

  Services& services_;
  bool resting_ = false;  // the last accept failed
  Poll* poll_ = nullptr;  // owned by the loop until its close callbacks
  std::unordered_map<Session*, std::shared_ptr<Session>> sessions_;
};

}  // namespace bulkhead::daemon
