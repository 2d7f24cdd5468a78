// Every generation the daemon has accepted and not yet forgotten, by id. Forgets those that ended and whose linger time
// is over, and cancels those that nobody came back for. What one user's ended inferences keep for a client that may
// come back is bounded in number and bytes; the oldest are forgotten first. Loop thread only.
#pragma once

#include <uv.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "daemon/idempotency_keys.h"
#include "daemon/inference.h"

namespace bulkhead::daemon {

class InferenceTable {
 public:
  // Of one user, ended and kept.
  static constexpr size_t kMaxKept = 256;
  static constexpr size_t kMaxKeptBytes = 64 << 20;

  // A restored request waits this long for its client; an ended one's record is kept as long for a client that the
  // daemon's end cut off from its last frames.
  static constexpr Duration kAttachWithin = std::chrono::seconds(60);
  static constexpr Duration kRecordGrace = std::chrono::seconds(30);

  // `records` may be null: then nothing outlives the daemon.
  InferenceTable(uv_loop_t* loop, const Clock& clock, supervisor::LocalGenerationOffload& offload,
                 RecordStore* records = nullptr);
  ~InferenceTable();
  InferenceTable(const InferenceTable&) = delete;
  InferenceTable& operator=(const InferenceTable&) = delete;

  // Hands the request to the offload; `listener` hears of it. The id is made here.
  std::shared_ptr<Inference> Start(supervisor::OffloadRequest request, Inference::Traits traits,
                                   Inference::Listener* listener);
  // Takes in what an earlier daemon left. Those still running are then given to Resume, or Abandon.
  std::shared_ptr<Inference> Restore(RecordedRequest recorded, bool exact);
  void Resume(Inference& inference, supervisor::OffloadRequest request);
  // Of all that is on record: the next daemon goes on with it.
  void HandOver();
  [[nodiscard]] bool outlives() const { return records_ != nullptr; }
  [[nodiscard]] std::shared_ptr<Inference> Find(std::string_view id) const;
  [[nodiscard]] IdempotencyKeys& keys() { return keys_; }

  // Forgets and cancels what is due, and sets the timer for the rest.
  void ExpireDue();
  [[nodiscard]] size_t size() const { return by_id_.size(); }

 private:
  using ById = std::map<std::string, std::shared_ptr<Inference>, std::less<>>;
  void Changed(uid_t uid);
  void BoundKept(uid_t uid);
  void ForgetRecords(Duration now);
  ById::iterator Erase(ById::iterator place);

  uv_timer_t* timer_;  // owned by the loop until its close callback
  const Clock& clock_;
  supervisor::LocalGenerationOffload& offload_;
  RecordStore* records_;
  std::deque<std::pair<Duration, uint64_t>> ended_records_;  // when to be forgotten, serial
  ById by_id_;
  IdempotencyKeys keys_;
};

}  // namespace bulkhead::daemon
