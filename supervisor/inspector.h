// Reads a model file's header in a process of its own (`bulkhead-worker --inspect=frame`), since the daemon never reads
// a model byte; answers are cached by file identity. Loop thread only. `done` is called later on the loop, once.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/status.h"
#include "bulkhead/v1/types.pb.h"
#include "supervisor/file_identity.h"
#include "supervisor/loop.h"
#include "supervisor/process_launcher.h"
#include "supervisor/settings.h"

namespace bulkhead::supervisor {

class Inspector {
 public:
  using Result = absl::StatusOr<std::shared_ptr<const v1::Manifest>>;
  using Done = std::function<void(Result)>;

  Inspector(Loop& loop, ProcessLauncher& launcher, const SupervisionSettings& settings);
  ~Inspector();

  void Inspect(std::shared_ptr<const UniqueFd> file, const FileIdentity& identity, Done done);
  [[nodiscard]] std::shared_ptr<const v1::Manifest> Cached(const FileIdentity& identity) const;
  // Kills what runs; everyone is answered with kShuttingDown.
  void Stop();
  [[nodiscard]] size_t running() const { return jobs_.size(); }
  // Callers that wait for an answer.
  [[nodiscard]] size_t waiting() const;

 private:
  struct Job;
  void Start(Job& job);
  void OnEnded(Job& job);
  void Finish(Job& job, const Result& result);

  static constexpr size_t kMaxCached = 256;
  static constexpr size_t kMaxRunning = 2;

  Loop* loop_;
  ProcessLauncher* launcher_;
  const SupervisionSettings* settings_;
  std::map<FileIdentity, std::shared_ptr<const v1::Manifest>> cache_;
  std::map<FileIdentity, std::unique_ptr<Job>> jobs_;
  uint64_t started_ = 0;
  bool stopped_ = false;
};

}  // namespace bulkhead::supervisor
