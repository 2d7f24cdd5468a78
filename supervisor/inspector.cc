#include "supervisor/inspector.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <string_view>
#include <utility>

#include "ipc/frame.h"
#include "ipc/message.h"
#include "ipc/worker_abi.h"
#include "supervisor/death.h"
#include "supervisor/worker_process.h"

namespace bulkhead::supervisor {
namespace {

// A manifest is a few hundred bytes; the header it is read from may be tens of megabytes.
constexpr size_t kMaxManifestBytes = 64 << 10;
#ifdef BULKHEAD_SANITIZER
constexpr uint64_t kInspectDataBytes = 0;
#else
constexpr uint64_t kInspectDataBytes = uint64_t{1} << 30;
#endif

// What the inspector of a bad file says about it: its last line.
std::string LastLine(std::string_view text) {
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  const size_t at = text.rfind('\n');
  if (at != std::string_view::npos) text.remove_prefix(at + 1);
  return std::string(text.substr(0, 512));
}

Inspector::Result ParseManifest(std::string_view bytes) {
  ipc::FrameReader reader(kMaxManifestBytes);
  ASSIGN_OR_RETURN(const auto payload, reader.Next(&bytes));
  if (!payload.has_value()) return Error(Reason::kWorkerProtocolError, "inspection: the manifest is cut short");
  auto manifest = std::make_shared<v1::Manifest>();
  RETURN_IF_ERROR(ipc::ParseInto(*manifest, *payload));
  return std::shared_ptr<const v1::Manifest>(std::move(manifest));
}

}  // namespace

struct Inspector::Job {
  Job(Loop& loop, ProcessLauncher& launcher, std::function<void()> ended)
      : process(loop, launcher, std::move(ended)), deadline(loop) {}

  FileIdentity identity;
  std::shared_ptr<const UniqueFd> file;
  std::vector<Done> waiters;
  WorkerProcess process;
  Timer deadline;
  bool started = false;
  bool late = false;
};

Inspector::Inspector(Loop& loop, ProcessLauncher& launcher, const SupervisionSettings& settings)
    : loop_(&loop), launcher_(&launcher), settings_(&settings) {}

Inspector::~Inspector() = default;

std::shared_ptr<const v1::Manifest> Inspector::Cached(const FileIdentity& identity) const {
  const auto found = cache_.find(identity);
  return found == cache_.end() ? nullptr : found->second;
}

size_t Inspector::waiting() const {
  size_t count = 0;
  for (const auto& [identity, job] : jobs_) count += job->waiters.size();
  return count;
}

void Inspector::Inspect(std::shared_ptr<const UniqueFd> file, const FileIdentity& identity, Done done) {
  if (stopped_) {
    loop_->Post([done = std::move(done)] { done(Error(Reason::kShuttingDown, "the daemon is stopping")); });
    return;
  }
  if (auto cached = Cached(identity)) {
    loop_->Post([done = std::move(done), cached = std::move(cached)] { done(cached); });
    return;
  }
  auto& job = jobs_[identity];
  if (job == nullptr) {
    job = std::make_unique<Job>(*loop_, *launcher_, [this, identity] {
      if (const auto found = jobs_.find(identity); found != jobs_.end()) OnEnded(*found->second);
    });
    job->identity = identity;
    job->file = std::move(file);
  }
  job->waiters.push_back(std::move(done));
  const auto running =
      std::count_if(jobs_.begin(), jobs_.end(), [](const auto& entry) { return entry.second->started; });
  if (!job->started && static_cast<size_t>(running) < kMaxRunning) Start(*job);
}

void Inspector::Start(Job& job) {
  job.started = true;
  LaunchSpec spec;
  spec.model_fd = job.file->get();
  spec.arguments = {ipc::kInspectFrameArgument};
  spec.control = false;
  spec.capture_stdout = true;
  spec.data_soft_bytes = kInspectDataBytes;
  spec.data_hard_bytes = kInspectDataBytes;
  spec.leaf = fmt::format("inspect-{}", ++started_);
  spec.leaf_limits = LimitsOf(kInspectDataBytes, job.identity.size, 1);
  if (auto launched = job.process.Launch(spec, kMaxManifestBytes + ipc::kFrameHeaderBytes); !launched.ok()) {
    Finish(job, launched.status());
    return;
  }
  job.deadline.Arm(settings_->watchdog.inspect, [&job] {
    job.late = true;
    job.process.Signal(SIGKILL);
  });
}

void Inspector::OnEnded(Job& job) {
  job.process.output()->Drain();
  job.process.errors().Drain();
  const auto exit = job.process.Reap();
  if (!exit.has_value()) return;
  const std::string& errors = job.process.errors().bytes();
  if (stopped_) {
    Finish(job, Error(Reason::kShuttingDown, "the daemon is stopping"));
  } else if (job.late) {
    Finish(job, Error(Reason::kWorkerStalled, fmt::format("model header: not read within {} ms",
                                                          settings_->watchdog.inspect / std::chrono::milliseconds(1))));
  } else if (exit->code == ipc::kWorkerExitModelInvalid) {
    Finish(job, Error(Reason::kModelInvalid, LastLine(errors)));
  } else if (exit->code == ipc::kWorkerExitModelUnsupported) {
    Finish(job, Error(Reason::kModelUnsupported, LastLine(errors)));
  } else if (exit->code != ipc::kWorkerExitOk) {
    DeathEvidence evidence;
    evidence.exit = *exit;
    evidence.phase = WorkerPhase::kLoad;
    evidence.stderr_tail = errors;
    const DeathVerdict verdict = Classify(evidence);
    Finish(job, Error(verdict.reason, fmt::format("model header: {} {}", verdict.detail, LastLine(errors))));
  } else {
    Finish(job, ParseManifest(job.process.output()->bytes()));
  }
}

void Inspector::Finish(Job& job, const Result& result) {
  if (result.ok()) {
    if (cache_.size() >= kMaxCached) cache_.erase(cache_.begin());
    cache_[job.identity] = *result;
  }
  for (Done& done : job.waiters) loop_->Post([done = std::move(done), result] { done(result); });
  jobs_.erase(job.identity);
  for (auto& [identity, waiting] : jobs_) {
    if (waiting->started) continue;
    // Later on the loop: a launch that fails comes back here.
    loop_->Post([this, identity = identity] {
      const auto found = jobs_.find(identity);
      if (found != jobs_.end() && !found->second->started) Start(*found->second);
    });
    break;
  }
}

void Inspector::Stop() {
  stopped_ = true;
  std::vector<Job*> waiting;
  for (auto& [identity, job] : jobs_) {
    if (job->started) {
      job->process.Signal(SIGKILL);
    } else {
      waiting.push_back(job.get());
    }
  }
  for (Job* job : waiting) Finish(*job, Error(Reason::kShuttingDown, "the daemon is stopping"));
}

}  // namespace bulkhead::supervisor
