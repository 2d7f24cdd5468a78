// Lines in the lives of workers and requests, from the offload to those who listen with `events`. Loop thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "supervisor/snapshot.h"

namespace bulkhead::daemon {

class EventHub {
 public:
  using Subscriber = std::function<void(const supervisor::LifecycleEvent&)>;

  uint64_t Subscribe(Subscriber subscriber) {
    subscribers_.emplace(++last_, std::move(subscriber));
    return last_;
  }
  void Unsubscribe(uint64_t id) { subscribers_.erase(id); }
  // A subscriber may leave, and others with it, while it is being told.
  void Publish(const supervisor::LifecycleEvent& event) {
    for (auto place = subscribers_.begin(); place != subscribers_.end();) {
      const uint64_t id = place->first;
      const Subscriber subscriber = place->second;
      subscriber(event);
      place = subscribers_.upper_bound(id);
    }
  }

 private:
  uint64_t last_ = 0;
  std::map<uint64_t, Subscriber> subscribers_;
};

}  // namespace bulkhead::daemon
