// What a worker says on its control socket. Every frame is checked against the state it may come in.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/build_id.h"
#include "bulkhead/v1/worker.pb.h"
#include "ipc/message.h"
#include "supervisor/allocation.h"

namespace bulkhead::supervisor {
namespace {

constexpr Duration kCountEvery = std::chrono::seconds(1);
constexpr int kMaxNotes = 16;
constexpr size_t kMaxNoteBytes = 256;

absl::Status Violation(std::string_view what) {
  return Error(Reason::kWorkerProtocolError, fmt::format("worker's frame: {}", what));
}

}  // namespace

void Allocation::OnFrame(std::string_view bytes, UniqueFd descriptor) {
  // Of a worker already on its way out only the ends of requests are of interest; nothing more is held against it.
  const bool leaving = state_ >= AllocationState::kTeardown;
  absl::Status handled = descriptor.valid() ? Violation("it carries a descriptor") : absl::OkStatus();
  if (handled.ok()) {
    const auto frame = ipc::ParseMessage<v1::WorkerFrame>(bytes);
    handled = frame.ok() ? Handle(**frame) : frame.status();
  }
  if (handled.ok()) return;
  if (leaving || state_ >= AllocationState::kTeardown) {
    socket_.reset();
    return;
  }
  if (ReasonOf(handled) == Reason::kWorkerBuildMismatch) {
    Fault(StopCause::kBuildMismatch, Message(handled));
  } else {
    Fault(StopCause::kProtocol, Message(handled));
  }
}

absl::Status Allocation::Handle(const v1::WorkerFrame& frame) {
  switch (frame.kind_case()) {
    case v1::WorkerFrame::kHello:
      return OnHello(frame);
    case v1::WorkerFrame::kLoadProgress:
      return OnProgress(frame);
    case v1::WorkerFrame::kReady:
      return OnWorkerReady(frame.ready());
    case v1::WorkerFrame::kLoadFailed:
      return OnLoadFailed(frame.load_failed());
    case v1::WorkerFrame::kStarted:
    case v1::WorkerFrame::kStep:
    case v1::WorkerFrame::kTokenized:
      return OnSteps(frame);
    case v1::WorkerFrame::kHeartbeat:
      return OnHeartbeat(frame.heartbeat());
    case v1::WorkerFrame::KIND_NOT_SET:
      break;
  }
  return Violation("of no known kind");
}

absl::Status Allocation::OnHello(const v1::WorkerFrame& frame) {
  if (state_ >= AllocationState::kTeardown) return absl::OkStatus();
  if (state_ != AllocationState::kStarting) return Violation("a second hello");
  const std::string& build = frame.hello().build();
  if (build != BuildId()) {
    return Error(Reason::kWorkerBuildMismatch,
                 fmt::format("worker is of build {:.64}, the daemon of {}; restart the daemon", build, BuildId()));
  }
  // Before Configure, upon which the process closes itself to everyone's eyes.
  memory_ = around_.memory->Open(process_.pid());
  Fire(AllocationEvent::kHello);
  EnterPhase(WorkerPhase::kLoad);
  v1::DaemonFrame answer;
  v1::Configure& configure = *answer.mutable_configure();
  configure.set_allocation_id(plan_.id);
  configure.set_context(plan_.shape.context);
  configure.set_sequences(plan_.shape.sequences);
  configure.set_threads(plan_.threads);
  configure.set_kv_type(around_.settings->model.kv_type);
  configure.set_kernel_tier(around_.settings->model.kernel_tier);
  configure.set_private_limit_bytes(plan_.data_soft_bytes);
  configure.set_fence_off(around_.settings->fence_off);
  configure.set_test_hook(around_.settings->test_hook);
  Send(answer);
  return absl::OkStatus();
}

absl::Status Allocation::OnProgress(const v1::WorkerFrame& frame) {
  if (state_ >= AllocationState::kTeardown) return absl::OkStatus();
  if (state_ != AllocationState::kLoading) return Violation("load progress outside of loading");
  const v1::LoadProgress& progress = frame.load_progress();
  LoadingEvent event;
  event.phase = progress.phase().substr(0, 64);
  event.done = progress.done();
  event.total = progress.total();
  // Sent also while nothing moves; only a change is movement. The phase is part of it.
  watchdog_.LoadProgress(std::hash<std::string>()(event.phase) ^ (event.done * 0x9E3779B97F4A7C15ULL),
                         around_.loop->now());
  host_->OnLoading(*this, event);
  return absl::OkStatus();
}

// Also how a worker says, at any time, that it ran out of memory; it exits with a code of its own after that.
absl::Status Allocation::OnLoadFailed(const v1::LoadFailed& failed) {
  if (state_ >= AllocationState::kTeardown) return absl::OkStatus();
  const bool may_come = state_ == AllocationState::kLoading || failed.reason() == v1::REASON_WORKER_OOM;
  if (!may_come) return Violation("load failed outside of loading");
  *load_failed_ = failed;
  Stop(StopCause::kLoadFailed, Patience::kByItself, failed.message());
  return absl::OkStatus();
}

absl::Status Allocation::OnWorkerReady(const v1::WorkerReady& ready) {
  if (state_ >= AllocationState::kTeardown) return absl::OkStatus();
  if (state_ != AllocationState::kLoading) return Violation("ready outside of loading");
  if (ready.sequences() == 0 || ready.context() == 0) return Violation("ready without a sequence or context");
  context_ = ready.context();
  sequences_ = ready.sequences();
  notes_ = {fmt::format("kernels: {}", ready.kernel_tier().substr(0, kMaxNoteBytes))};
  for (const std::string& note : ready.notes()) {
    if (notes_.size() < kMaxNotes) notes_.push_back(note.substr(0, kMaxNoteBytes));
  }
  if (process_.leaf() != nullptr) process_.leaf()->SetCpuWeight(kWorkerCpuWeight);
  Measure();
  expect_progress_ = false;
  EnterPhase(WorkerPhase::kIdle);
  Fire(AllocationEvent::kReady);
  host_->OnReady(*this);
  return absl::OkStatus();
}

absl::Status Allocation::OnSteps(const v1::WorkerFrame& frame) {
  if (state_ < AllocationState::kIdle) return Violation("a step before ready");
  watchdog_.Moved(around_.loop->now());
  if (frame.kind_case() == v1::WorkerFrame::kTokenized) return host_->OnTokenized(*this, frame.tokenized());
  if (frame.kind_case() == v1::WorkerFrame::kStarted) return host_->OnStarted(*this, frame.started());
  if (expect_progress_ && state_ == AllocationState::kBusy) EnterPhase(WorkerPhase::kDecode);
  for (const v1::SequenceStep& step : frame.step().sequences()) {
    RETURN_IF_ERROR(host_->OnSequence(*this, step));
  }
  return absl::OkStatus();
}

absl::Status Allocation::OnHeartbeat(const v1::Heartbeat& heartbeat) {
  if (state_ >= AllocationState::kTeardown) return absl::OkStatus();
  if (state_ < AllocationState::kLoading) return Violation("a heartbeat before configure");
  watchdog_.Progress(heartbeat.progress(), around_.loop->now());
  if (heartbeat.has_engine()) {
    engine_ = heartbeat.engine();
    heartbeat_at_ = around_.loop->now();
  }
  if (expect_progress_ && state_ == AllocationState::kBusy) {
    if (heartbeat.phase() == "prefill") EnterPhase(WorkerPhase::kPrefill);
    if (heartbeat.phase() == "decode") EnterPhase(WorkerPhase::kDecode);
  }
  if (around_.loop->now() - oom_counted_at_ >= kCountEvery) CountOutOfMemoryKills();
  return absl::OkStatus();
}

// The older of two readings counts as "before": frames of a worker killed a moment ago may still be on their way.
void Allocation::CountOutOfMemoryKills() {
  oom_counted_at_ = around_.loop->now();
  oom_kills_ = std::exchange(oom_kills_next_, around_.memory->OutOfMemoryKills());
}

void Allocation::Measure() {
  if (memory_ == nullptr || state_ >= AllocationState::kTeardown) return;
  std::optional<uint64_t> bytes = memory_->PrivateBytes();
  file_bytes_ = memory_->FileBytes().value_or(file_bytes_);
  // The leaf counts what the process list cannot see, such as memory of files that only this worker has made.
  if (process_.leaf() != nullptr) {
    const LeafReading leaf = process_.leaf()->Read();
    if (leaf.private_bytes.has_value()) bytes = std::max(bytes.value_or(0), *leaf.private_bytes);
  }
  if (!bytes.has_value()) return;
  private_bytes_ = *bytes;
  host_->OnMeasured(*this, *bytes);
}

}  // namespace bulkhead::supervisor
