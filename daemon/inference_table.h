// Every generation the daemon has accepted and not yet forgotten, by id. Forgets those that ended and whose linger time
// is over, and cancels those that nobody came back for. Loop thread only.
#pragma once

#include <uv.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "daemon/inference.h"

namespace bulkhead::daemon {

class InferenceTable {
 public:
  InferenceTable(uv_loop_t* loop, const Clock& clock, supervisor::LocalGenerationOffload& offload);
  ~InferenceTable();
  InferenceTable(const InferenceTable&) = delete;
  InferenceTable& operator=(const InferenceTable&) = delete;

  // Hands the request to the offload; `listener` hears of it. The id is made here.
  std::shared_ptr<Inference> Start(supervisor::OffloadRequest request, Inference::Traits traits,
                                   Inference::Listener* listener);
  [[nodiscard]] std::shared_ptr<Inference> Find(std::string_view id) const;
  // A lingering one that this user began under this key; null for an empty key.
  [[nodiscard]] std::shared_ptr<Inference> FindByKey(uid_t uid, std::string_view key) const;

  // Forgets and cancels what is due, and sets the timer for the rest.
  void ExpireDue();
  [[nodiscard]] size_t size() const { return by_id_.size(); }

 private:
  uv_timer_t* timer_;  // owned by the loop until its close callback
  const Clock& clock_;
  supervisor::LocalGenerationOffload& offload_;
  std::map<std::string, std::shared_ptr<Inference>, std::less<>> by_id_;
};

}  // namespace bulkhead::daemon
