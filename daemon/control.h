// What a session needs from the daemon around it. Loop thread only; every callback comes later on the loop, once.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "bulkhead/v1/client.pb.h"
#include "daemon/access.h"
#include "daemon/config.h"

namespace bulkhead::daemon {

class Control {
 public:
  virtual ~Control() = default;
  [[nodiscard]] virtual const LoadedConfig& loaded() const = 0;
  [[nodiscard]] virtual const Access& access() const = 0;
  // Rises with every change of the configuration in force.
  [[nodiscard]] virtual uint64_t generation() const = 0;
  [[nodiscard]] virtual bool stopping() const = 0;
  // What does not work as designed; empty if all does.
  [[nodiscard]] virtual std::string degraded() const = 0;

  // Puts `settings` in force on top of what is, or says why not.
  virtual absl::Status SetPolicy(const std::vector<Setting>& settings) = 0;
  virtual void Reload(std::function<void(absl::Status)> done) = 0;
  virtual void Doctor(std::function<void(v1::DoctorReply)> done) = 0;
};

}  // namespace bulkhead::daemon
