// What `bulkhead doctor` says about the machine and this daemon's place on it. Blocking: for a pool thread. Pure
// reading.
#pragma once

#include <string>
#include <vector>

#include "bulkhead/v1/client.pb.h"
#include "supervisor/snapshot.h"

namespace bulkhead::daemon {

struct DoctorInputs {
  std::vector<std::string> model_directories;
  std::string state_directory;
  std::string socket;
  std::string worker;
  std::string degraded;    // as the offload says
  std::string cgroup;      // what became of our cgroup, in words
  bool delegated = false;  // each worker has a leaf of its own
  supervisor::ResourceReport resources;
  bool watched = false;  // by systemd's watchdog
  bool activated = false;
  std::vector<supervisor::ResidentModel> models;
};

v1::DoctorReply Examine(const DoctorInputs& inputs);

}  // namespace bulkhead::daemon
