// The running daemon: what the configuration in force makes of the offload, the catalogue, the sessions and the
// signals, from start to the last answered request. Loop thread only.
//
// Life: Create, Start, run the loop until it has nothing left, destroy. The loop ends by itself once a stop is
// complete.
#pragma once

#include <uv.h>
#include <csignal>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "daemon/catalogue.h"
#include "daemon/config_sources.h"
#include "daemon/control.h"
#include "daemon/event_hub.h"
#include "daemon/inference_table.h"
#include "daemon/records.h"
#include "daemon/server.h"
#include "daemon/service_manager.h"
#include "daemon/session.h"
#include "supervisor/cgroup_tree.h"
#include "supervisor/memory_probe.h"
#include "supervisor/process_launcher.h"
#include "supervisor/worker_offload.h"

namespace bulkhead::daemon {

class Manager final : public Control {
 public:
  struct Options {
    uv_loop_t* loop = nullptr;
    DescriptorReserve descriptors;
    ConfigSources sources;
    LoadedConfig loaded;
    std::optional<gid_t> admin_group;
    UniqueFd listening;           // non-blocking
    UniqueFd records;             // an earlier daemon's requests, see records.h
    bool keep_records = false;    // there is a descriptor store
    std::string own_socket_path;  // to be removed at the end; empty where systemd owns it
    // What a simulation puts in the kernel's place; null: the real ones. All outlive the manager.
    const Clock* clock = nullptr;
    supervisor::ProcessLauncher* launcher = nullptr;
    supervisor::MemoryProbe* memory = nullptr;
  };
  static absl::StatusOr<std::unique_ptr<Manager>> Create(Options options);
  ~Manager() override;

  // SIGTERM, SIGINT and SIGHUP: to be blocked from the first moment on, so that none of them ends the process before
  // Start has set their handlers and unblocked them.
  static sigset_t HandledSignals();

  // Serves from now on and tells systemd.
  absl::Status Start();
  // Refuses new work, drains, answers everything, and lets the loop run out. A second call hurries.
  void Stop();
  // The same, but what is on record is left to the next daemon, as it is where this one is killed.
  void HandOver();

  // For a simulation: a client without the listening socket, and deadlines that an injected clock has made due.
  void Serve(UniqueFd fd, ipc::PeerCredentials peer) { server_->Serve(std::move(fd), std::move(peer)); }
  void RunDueTimers();
  [[nodiscard]] const supervisor::WorkerOffload* offload() const { return offload_.get(); }
  [[nodiscard]] const UidLedger& uids() const { return uids_; }

  [[nodiscard]] const LoadedConfig& loaded() const override { return loaded_; }
  [[nodiscard]] const Access& access() const override { return access_; }
  [[nodiscard]] uint64_t generation() const override { return generation_; }
  [[nodiscard]] bool stopping() const override { return stopping_; }
  [[nodiscard]] std::string degraded() const override;
  absl::Status SetPolicy(const std::vector<Setting>& settings) override;
  void Reload(std::function<void(absl::Status)> done) override;
  void Doctor(std::function<void(v1::DoctorReply)> done) override;

 private:
  explicit Manager(Options options);

  absl::Status CreateOffload();
  absl::Status WatchSignals();
  void WatchLoop();
  void Preload();
  void OpenRecords(UniqueFd earlier, bool keep);
  void RestoreRequests();
  void RestoreRequest(RecordedRequest recorded);
  void PutInForce(LoadedConfig next, const Access& access);
  void ApplyPins();
  void OnLifecycle(const supervisor::LifecycleEvent& event);
  void OnStatusDue();
  [[nodiscard]] std::string StatusLine() const;
  void Hurry();
  void Stopped();

  uv_loop_t* loop_;
  const DescriptorReserve descriptors_;
  ConfigSources sources_;
  LoadedConfig loaded_;
  Access access_;
  UniqueFd listening_;
  std::string own_socket_path_;
  uint64_t generation_ = 1;
  bool stopping_ = false;
  bool reloading_ = false;
  std::string config_problem_;  // of the last reload

  ServiceManager service_;
  ipc::SocketLoop sockets_;
  UidLedger uids_;
  EventHub events_;
  Catalogue catalogue_;
  const Clock& clock_;
  supervisor::ProcessLauncher* launcher_;
  supervisor::MemoryProbe* memory_;
  supervisor::CgroupTree::Adoption cgroup_;  // outlives the launcher, whose workers have leaves in it
  std::unique_ptr<supervisor::PosixLauncher> own_launcher_;
  std::unique_ptr<supervisor::MemoryProbe> own_memory_;
  std::unique_ptr<RecordStore> records_;
  RecordedState recorded_;  // until Start
  std::unique_ptr<supervisor::WorkerOffload> offload_;
  std::unique_ptr<InferenceTable> inferences_;
  std::unique_ptr<Services> services_;
  std::unique_ptr<Server> server_;

  uv_signal_t term_ = {};
  uv_signal_t interrupt_ = {};
  uv_signal_t hangup_ = {};
  uv_signal_t restart_ = {};
  uv_timer_t watchdog_ = {};
  uv_timer_t status_ = {};
  bool status_due_ = false;
};

// What the configuration says, as the supervisor reads it.
supervisor::SupervisionSettings SettingsOf(const Config& config);

}  // namespace bulkhead::daemon
