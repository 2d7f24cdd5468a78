// One generation on its way from the offload to whichever connection listens to it, if any. It holds what has not been
// delivered, and, where the client asked to linger, what has been, within a bound, so that another connection of the
// same user can go on from there.
//
// Order to a listener: queued* loading* started delta* and one terminal. A listener that is congested, or whose grant
// is used up, gets nothing and the sequence is paused meanwhile. Terminals need no grant, but a good end waits for the
// deltas before it. Loop thread only; shared by the table, the offload's sink and the listening request.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "bulkhead/v1/client.pb.h"
#include "daemon/access.h"
#include "daemon/records.h"
#include "supervisor/offload.h"

namespace bulkhead::daemon {

class Inference : public std::enable_shared_from_this<Inference> {
 public:
  // What a lingering inference keeps of its deltas, in bytes of text and tokens.
  static constexpr size_t kKeptBytes = 4 << 20;

  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void Deliver(v1::ServerFrame frame) = 0;
    [[nodiscard]] virtual bool Congested() const = 0;
    // The terminal was delivered; the inference forgets its listener right after. The last call.
    virtual void Finished() = 0;
    // Another connection listens now. The last call.
    virtual void Replaced() = 0;
  };

  struct Traits {
    std::string id;
    std::string model;
    uid_t uid = 0;
    Duration linger{0};
    std::string idempotency_key;
    RecordStore* records = nullptr;  // null: it does not outlive the daemon
    uint64_t record = 0;             // its serial there
    UidShare in_flight;              // until the terminal
    UidShare received_bytes;         // until it starts
  };

  // `changed` is called when expires_at or the presence of a listener may have changed; it may drop the last owner.
  Inference(Traits traits, supervisor::LocalGenerationOffload& offload, const Clock& clock,
            std::function<void()> changed);

  // The sink to hand to the offload, once.
  std::unique_ptr<supervisor::StreamSink> MakeSink();

  // What an earlier daemon had of it, before a listener comes; it waits for one until `until`.
  void Restore(RecordedRequest&& recorded, bool exact, Duration until);
  // To the next daemon, which finds it on record: what still comes of it here is neither recorded nor told, and its
  // listener hears nothing more.
  void HandOver();
  // It cannot go on.
  void Abandon(const supervisor::OffloadError& error);

  // Makes `listener` the one, from the delta that holds token `from_index` on. kLimitExceeded where that is no longer
  // kept. The listener must be detached before it goes.
  absl::Status Attach(Listener* listener, uint64_t from_index);
  // The listener's connection is gone: cancels, unless it is to linger.
  void Detach();
  // Delivers what may be delivered now and pauses or resumes the sequence; for when congestion changed.
  void Pump();
  void Grant(uint64_t up_to_index);

  [[nodiscard]] const std::string& id() const { return traits_.id; }
  [[nodiscard]] const std::string& model() const { return traits_.model; }
  [[nodiscard]] uid_t uid() const { return traits_.uid; }
  [[nodiscard]] const std::string& idempotency_key() const { return traits_.idempotency_key; }
  [[nodiscard]] bool restored() const { return restored_; }
  [[nodiscard]] uint64_t record() const { return traits_.record; }
  [[nodiscard]] bool lingers() const { return traits_.linger > Duration(0); }
  [[nodiscard]] size_t kept_bytes() const { return kept_bytes_; }
  [[nodiscard]] bool has_listener() const { return listener_ != nullptr; }
  [[nodiscard]] bool ended() const { return terminal_.has_value(); }
  // When it is to be forgotten (Clock::Monotonic); nullopt while it runs with a listener.
  [[nodiscard]] std::optional<Duration> expires_at() const { return expires_at_; }

 private:
  class Sink;

  void OnEvent(v1::ServerFrame frame);
  void OnResumed(v1::ServerFrame frame);
  void Record(const v1::ServerFrame& frame);
  void OnStarted(const supervisor::StartedEvent& started);
  void OnDelta(const supervisor::DeltaEvent& delta);
  void OnTerminal(v1::ServerFrame frame, bool waits_for_deltas);

  [[nodiscard]] bool GrantCovers(uint64_t index) const { return !grant_ || index < *grant_; }
  void DeliverDeltas();
  void DeliverTerminal();
  void ForgetDelivered();
  void UpdatePause();
  void LingerFromNow();

  Traits traits_;
  supervisor::LocalGenerationOffload& offload_;
  const Clock& clock_;
  std::function<void()> changed_;
  Listener* listener_ = nullptr;
  std::optional<v1::ServerFrame> started_;
  std::optional<v1::ServerFrame> resumed_;  // not heard by anybody yet
  bool restored_ = false;
  bool tail_known_ = false;  // restored with all of its text; only the terminal was missing
  std::deque<supervisor::DeltaEvent> deltas_;
  size_t delivered_ = 0;     // deltas_ before this one have been delivered
  size_t kept_bytes_ = 0;    // of deltas_
  uint64_t next_index_ = 0;  // of the next delta the offload will bring
  uint64_t first_kept_ = 0;  // tokens before this one are forgotten
  std::optional<uint64_t> grant_;
  std::optional<v1::ServerFrame> terminal_;
  bool terminal_waits_ = true;
  bool paused_ = false;
  std::optional<Duration> expires_at_;
};

}  // namespace bulkhead::daemon
