// One open request of a session. Private to session*.cc.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "daemon/session.h"

namespace bulkhead::daemon {

class Session::Request final : public Inference::Listener {
 public:
  Request(Session& session, Ref ref, UidShare slot) : session_(session), ref_(ref), slot_(std::move(slot)) {}
  // Lets go of whatever it waited for: the client is gone or was answered.
  ~Request() override;

  void Deliver(v1::ServerFrame frame) override { session_.Send(frame, ref_.id); }
  [[nodiscard]] bool Congested() const override { return session_.Congested(); }
  void Finished() override;
  void Replaced() override;

  [[nodiscard]] Ref ref() const { return ref_; }
  UidShare TakeSlot() { return std::move(slot_); }

  std::shared_ptr<Inference> inference;  // it listens to
  bool generating = false;               // a generate or attach, also before there is an inference
  std::optional<uint64_t> early_grant;   // came before there was an inference
  std::string load_id;                   // of a load under way
  uint64_t subscription = 0;             // of `events`
  uint64_t events_lost = 0;              // since the last one sent

 private:
  Session& session_;
  Ref ref_;
  UidShare slot_;
};

}  // namespace bulkhead::daemon
