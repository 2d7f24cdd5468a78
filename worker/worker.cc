#include "worker/worker.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <latch>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/build_id.h"
#include "base/clock.h"
#include "base/sys.h"
#include "bulkhead/v1/worker.pb.h"
#include "engine/runtime/continuous_batch_engine.h"
#include "engine/runtime/engine_thread.h"
#include "ipc/worker_abi.h"
#include "kernels/compute_pool.h"
#include "kernels/cpu_features.h"
#include "kernels/dispatch.h"
#include "kernels/numerics.h"
#include "worker/control_session.h"
#include "worker/die.h"
#include "worker/fault_handlers.h"
#include "worker/fence.h"
#include "worker/generation_service.h"
#include "worker/group_priority.h"
#include "worker/heartbeat.h"
#include "worker/hooks.h"
#include "worker/model_load.h"
#include "worker/out_of_memory.h"
#include "worker/outbox.h"
#include "worker/syscall_filter.h"
#include "worker/translate.h"

namespace bulkhead::worker {
namespace {

constexpr Duration kConfigureDeadline = std::chrono::seconds(60);
constexpr uint32_t kMaxThreads = 1024;
constexpr int kLoaderNice = 10;  // whoever is being served on this machine keeps its processor time

// Threads exist before the filter that forbids making any.
struct Threads {
  engine::EngineThread loader{"loader"};
  engine::EngineThread intake{"intake"};
  engine::EngineThread engine{"engine"};
};

class Worker final : public ControlSession::Handler {
 public:
  Worker(Hooks* hooks, std::vector<std::string> notes, GroupPriority priority)
      : hooks_(hooks),
        notes_(std::move(notes)),
        priority_(std::move(priority)),
        session_(UniqueFd(ipc::kWorkerControl), &outbox_, &Writer()),
        configure_by_(SystemClock().Monotonic() + kConfigureDeadline) {}

  // Lives as long as the process: an out-of-memory report may need it at any time.
  static ControlWriter& Writer() {
    static ControlWriter writer;
    return writer;
  }

  int Run() {
    SendHello();
    return session_.Run(*this);
  }

  void OnFrame(const v1::DaemonFrame& frame) override;
  Duration OnTurn(Duration now) override;

 private:
  Duration OnStage(Duration now);
  enum class Stage : uint8_t { kHello, kLoading, kServing, kStopping };

  void SendHello();
  void OnConfigure(const v1::Configure& configure);
  void StartThreads(const v1::Configure& configure);
  void EnterLoadFilter();
  void StartLoading(const v1::Configure& configure);
  bool OnLoadProgress(std::string_view phase, uint64_t done, uint64_t total);
  void FinishLoading(absl::StatusOr<Loaded> loaded);
  void SendReady();
  void SendLoadFailed(const absl::Status& why);
  void OnServing(const v1::DaemonFrame& frame);
  void Shutdown();
  [[nodiscard]] bool fenced() const { return hooks_ == nullptr || !hooks_->fence_off(); }
  void At(HookPoint point) {
    if (hooks_ != nullptr) hooks_->At(point);
  }

  Hooks* const hooks_;
  std::vector<std::string> notes_;
  GroupPriority priority_;
  Stage stage_ = Stage::kHello;
  Outbox outbox_;
  ControlSession session_;
  const Duration configure_by_;
  Heartbeats heartbeats_;

  std::optional<SyscallFilters> filters_;
  std::unique_ptr<kernels::ComputePool> pool_;
  std::unique_ptr<Threads> threads_;
  std::unique_ptr<GenerationService> service_;
  Loaded loaded_;

  std::atomic<uint64_t> load_progress_{0};
  std::mutex mutex_;
  std::optional<absl::StatusOr<Loaded>> load_outcome_;  // by the loader thread
};

void Worker::SendHello() {
  v1::WorkerFrame frame;
  frame.mutable_hello()->set_build(std::string(BuildId()));
  frame.mutable_hello()->set_numerics(kernels::kNumericsVersion);
  frame.mutable_hello()->set_pid(sys::GetPid());
  outbox_.Push(frame);
}

void Worker::OnFrame(const v1::DaemonFrame& frame) {
  if (frame.kind_case() == v1::DaemonFrame::kShutdown) return Shutdown();
  if (stage_ == Stage::kHello && frame.kind_case() == v1::DaemonFrame::kConfigure) {
    return OnConfigure(frame.configure());
  }
  if (stage_ == Stage::kServing) return OnServing(frame);
  if (stage_ == Stage::kStopping) return;
  Die(ipc::kWorkerExitProtocol, "the daemon sent a request before READY");
}

void Worker::OnConfigure(const v1::Configure& configure) {
  if (hooks_ == nullptr && (configure.fence_off() || !configure.test_hook().empty())) {
    Die(ipc::kWorkerExitProtocol, "this build has no test hooks and no way to lower its fence");
  }
  if (!configure.test_hook().empty() && !hooks_->Configure(configure.test_hook())) {
    Die(ipc::kWorkerExitProtocol, "unknown test hook");
  }
  SetMemoryLimit(configure.private_limit_bytes());
  stage_ = Stage::kLoading;
  StartThreads(configure);
  EnterLoadFilter();
  StartLoading(configure);
}

void Worker::StartThreads(const v1::Configure& configure) {
  kernels::ComputePool::Options options;
  options.threads = std::clamp(configure.threads(), 1u, kMaxThreads);
  auto pool = kernels::ComputePool::Create(options);
  if (!pool.ok()) Die(ipc::kWorkerExitInternal, Message(pool.status()));
  pool_ = *std::move(pool);
  threads_ = std::make_unique<Threads>();
  // A nice value cannot be taken back without privilege, so the loader is a thread of its own.
  std::latch started(3);
  threads_->loader.Post([&] {
    (void)sys::SetPriority(0, kLoaderNice);
    started.count_down();
  });
  threads_->intake.Post([&] { started.count_down(); });
  threads_->engine.Post([&] { started.count_down(); });
  started.wait();
  service_ = std::make_unique<GenerationService>(&outbox_, &threads_->intake, hooks_);
}

void Worker::EnterLoadFilter() {
  std::string why;
  if (!fenced() || FenceUnavailable(&why)) {
    notes_.push_back(why.empty() ? "fence: off, by a test" : why);
  } else {
    if (absl::Status status = DenyInspection(); !status.ok()) Die(ipc::kWorkerExitFence, Message(status));
    auto filters = SyscallFilters::Build(ipc::kWorkerControl, ipc::kWorkerModel);
    if (!filters.ok()) Die(ipc::kWorkerExitFence, Message(filters.status()));
    filters_ = *std::move(filters);
    if (absl::Status status = filters_->EnterLoad(); !status.ok()) Die(ipc::kWorkerExitFence, Message(status));
  }
  At(HookPoint::kLoadFilterMain);
}

void Worker::StartLoading(const v1::Configure& configure) {
  auto shape = ToShape(configure);
  if (!shape.ok()) return SendLoadFailed(shape.status());
  LoadSettings settings;
  settings.model_fd = ipc::kWorkerModel;
  settings.shape = *shape;
  settings.kernel_tier = configure.kernel_tier();
  settings.pool = pool_.get();
  settings.engine_thread = &threads_->engine;
  settings.sink = service_.get();
  threads_->loader.Post([this, settings] {
    At(HookPoint::kLoadFilterThread);
    auto loaded = LoadModel(settings, [this](std::string_view phase, uint64_t done, uint64_t total) {
      return OnLoadProgress(phase, done, total);
    });
    {
      const std::lock_guard lock(mutex_);
      load_outcome_ = std::move(loaded);
    }
    outbox_.Wake();
  });
}

bool Worker::OnLoadProgress(std::string_view phase, uint64_t done, uint64_t total) {
  ++load_progress_;
  if (hooks_ != nullptr) hooks_->OnLoadProgress();
  if (outbox_.congested()) return true;
  v1::WorkerFrame frame;
  frame.mutable_load_progress()->set_phase(std::string(phase));
  frame.mutable_load_progress()->set_done(done);
  frame.mutable_load_progress()->set_total(total);
  outbox_.Push(frame);
  return true;
}

Duration Worker::OnTurn(Duration now) {
  const Duration stage = OnStage(now);
  return std::min(stage, priority_.OnTurn(now));
}

Duration Worker::OnStage(Duration now) {
  std::optional<absl::StatusOr<Loaded>> outcome;
  {
    const std::lock_guard lock(mutex_);
    outcome = std::exchange(load_outcome_, std::nullopt);
  }
  if (outcome.has_value() && stage_ == Stage::kLoading) FinishLoading(*std::move(outcome));
  switch (stage_) {
    case Stage::kHello:
      if (now >= configure_by_) Die(ipc::kWorkerExitProtocol, "no Configure came");
      return configure_by_;
    case Stage::kLoading:
      return heartbeats_.Load(now, load_progress_.load(), &outbox_);
    case Stage::kServing:
      service_->ResumeIfDrained();
      return heartbeats_.Serve(now, load_progress_.load(), *loaded_.engine, service_->busy(), &outbox_);
    case Stage::kStopping:
      break;
  }
  return Duration::max();
}

void Worker::FinishLoading(absl::StatusOr<Loaded> loaded) {
  if (!loaded.ok()) return SendLoadFailed(loaded.status());
  loaded_ = *std::move(loaded);
  service_->Attach(loaded_.model, loaded_.engine.get());
  if (filters_.has_value()) {
    if (absl::Status status = filters_->EnterRun(); !status.ok()) Die(ipc::kWorkerExitFence, Message(status));
  }
  At(HookPoint::kRunFilterMain);
  threads_->intake.Post([this] { At(HookPoint::kRunFilterThread); });
  stage_ = Stage::kServing;
  priority_.Want(0);
  SendReady();
}

void Worker::SendReady() {
  v1::WorkerFrame frame;
  v1::WorkerReady& ready = *frame.mutable_ready();
  *ready.mutable_manifest() = loaded_.manifest;
  ready.set_context(loaded_.engine->context());
  ready.set_sequences(loaded_.engine->Snapshot().max_sequences);
  ready.set_kernel_tier(loaded_.engine->kernel_tier());
  ready.set_private_bytes(loaded_.engine->private_bytes());
  for (const std::string& note : notes_) ready.add_notes(note);
  const std::string& demotion = kernels::DefaultTier().reason;
  if (!demotion.empty()) ready.add_notes("kernels: " + demotion);
  outbox_.Push(frame);
}

void Worker::SendLoadFailed(const absl::Status& why) {
  stage_ = Stage::kStopping;
  v1::WorkerFrame frame;
  frame.mutable_load_failed()->set_reason(ToReason(ReasonOf(why)));
  frame.mutable_load_failed()->set_message(Printable(Message(why)));
  outbox_.Push(frame);
  session_.Stop(ipc::kWorkerExitOk);
}

void Worker::OnServing(const v1::DaemonFrame& frame) {
  switch (frame.kind_case()) {
    case v1::DaemonFrame::kGenerate:
      return service_->Generate(frame.generate());
    case v1::DaemonFrame::kCancel:
      return service_->Cancel(frame.cancel().handle());
    case v1::DaemonFrame::kPause:
      return service_->Pause(frame.pause().handle(), frame.pause().paused());
    case v1::DaemonFrame::kTokenize:
      return service_->Tokenize(frame.tokenize());
    case v1::DaemonFrame::kThreads:
      return loaded_.engine->SetThreads(frame.threads().threads());
    default:
      Die(ipc::kWorkerExitProtocol, "the daemon sent a frame that has no place here");
  }
}

void Worker::Shutdown() {
  const Stage before = std::exchange(stage_, Stage::kStopping);
  if (before == Stage::kStopping) return;
  if (before != Stage::kServing) return session_.Stop(ipc::kWorkerExitOk);
  threads_->intake.Post([this] {
    loaded_.engine->Shutdown(Duration::zero());
    session_.Stop(ipc::kWorkerExitOk);
  });
}

}  // namespace

void RunWorker(Hooks* hooks) {
  if (hooks != nullptr) hooks->At(HookPoint::kSpawned);
  NameProcess();
  DieWithParent(ipc::kWorkerControl);
  InstallFaultHandlers();
  PrepareOutOfMemory(ipc::kWorkerControl, &Worker::Writer());
  std::vector<std::string> notes;
  std::string why;
  GroupPriority priority = GroupPriority::OfThisProcess();
  priority.Want(kLoaderNice);
  if ((hooks == nullptr || !hooks->fence_off()) && !FenceUnavailable(&why)) {
    if (absl::Status status = GiveUpPaths(&notes); !status.ok()) Die(ipc::kWorkerExitFence, Message(status));
  }
  // Never destroyed: the process ends without waiting for its threads.
  auto* worker = new Worker(hooks, std::move(notes), std::move(priority));
  std::_Exit(worker->Run());
}

}  // namespace bulkhead::worker
