#include "supervisor/allocation.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "base/build_id.h"
#include "bulkhead/v1/worker.pb.h"
#include "ipc/message.h"
#include "supervisor/milliseconds.h"

namespace bulkhead::supervisor {
namespace {

// A worker whose socket is lost has ended in nearly every case, and its pidfd says so within the same moment.
constexpr Duration kSilenceGrace = std::chrono::milliseconds(300);
// What a dead worker's socket may still hold is bounded by its buffers; a grandchild may go on writing.
constexpr size_t kDrainBytes = 4 << 20;
// Of a worker that its cgroup's limit killed nobody knows how much it wanted; a page it was at least.
constexpr uint64_t kSmallestWish = 4096;
// A watchdog that rings this long after its time was kept from ringing: the machine, or the daemon, stood still.
constexpr Duration kStoodStill = std::chrono::seconds(1);

}  // namespace

Allocation::Allocation(Plan plan, const Surroundings& surroundings, Host& host)
    : plan_(std::move(plan)),
      around_(surroundings),
      host_(&host),
      process_(*surroundings.loop, *surroundings.launcher, [this] { OnProcessEnded(); }),
      watchdog_timer_(*surroundings.loop),
      teardown_timer_(*surroundings.loop),
      silence_timer_(*surroundings.loop),
      load_failed_(std::make_unique<std::optional<v1::LoadFailed>>()) {
  context_ = plan_.shape.context;
  sequences_ = plan_.shape.sequences;
}

Allocation::~Allocation() = default;

const std::optional<v1::LoadFailed>& Allocation::load_failed() const { return *load_failed_; }

AllocationAction Allocation::Fire(AllocationEvent event) {
  const AllocationStep step = Step(state_, event);
  const bool leaves_service = step.next == AllocationState::kTeardown && state_ != AllocationState::kTeardown;
  if (leaves_service) {
    death_phase_ = watchdog_.phase();
    EnterPhase(WorkerPhase::kTeardown);
  }
  state_ = step.next;
  host_->OnStep(*this, event, step);
  return step.action;
}

absl::Status Allocation::Launch() {
  oom_kills_ = oom_kills_next_ = around_.memory->OutOfMemoryKills();
  launched_at_ = around_.loop->now();
  LaunchSpec spec;
  spec.model_fd = plan_.file->get();
  spec.data_soft_bytes = plan_.data_soft_bytes;
  spec.data_hard_bytes = plan_.data_hard_bytes;
  // A model's name may be anything; the numbers behind it name this life of the daemon and this allocation.
  spec.leaf = plan_.id.substr(plan_.id.rfind('#') + 1);
  spec.leaf_limits = LimitsOf(plan_.data_soft_bytes, plan_.weight_bytes, plan_.threads);
  auto control = process_.Launch(spec);
  if (!control.ok()) {
    Fire(AllocationEvent::kSpawnFailed);
    return control.status();
  }
  Fire(AllocationEvent::kSpawned);
  EnterPhase(WorkerPhase::kHello);
  auto socket = ipc::FrameSocket::Create(*around_.sockets, std::move(*control), {}, this);
  if (socket.ok()) {
    socket_ = std::move(*socket);
  } else {
    Fault(StopCause::kProtocol, Message(socket.status()));
  }
  return absl::OkStatus();
}

void Allocation::Stop(StopCause cause, Patience patience, std::string detail) {
  if (cause_ == StopCause::kNone && state_ < AllocationState::kTeardown) {
    cause_ = cause;
    cause_detail_ = std::move(detail);
  }
  switch (Fire(AllocationEvent::kStop)) {
    case AllocationAction::kKill:
      BeginTeardown(patience);
      break;
    case AllocationAction::kHasten:
      if (patience == Patience::kNone && !killed_) KillNow();
      break;
    case AllocationAction::kRetryKill:
      process_.Signal(SIGKILL);
      break;
    default:
      break;
  }
}

void Allocation::Fault(StopCause cause, std::string detail) {
  if (Step(state_, AllocationEvent::kFault).action != AllocationAction::kKill) return;
  cause_ = cause;
  cause_detail_ = std::move(detail);
  Fire(AllocationEvent::kFault);
  // Whatever else it says is not to be believed.
  socket_.reset();
  BeginTeardown(Patience::kNone);
}

void Allocation::BeginTeardown(Patience patience) {
  silence_timer_.Cancel();
  if (patience == Patience::kNone) {
    KillNow();
    return;
  }
  if (patience == Patience::kTerm) {
    signalled_ = true;
    process_.Signal(SIGTERM);
  }
  teardown_timer_.Arm(around_.settings->deadlines.term, [this] { KillNow(); });
}

void Allocation::KillNow() {
  if (!process_.running()) return;
  signalled_ = true;
  killed_ = true;
  process_.Signal(SIGKILL);
  teardown_timer_.Arm(around_.settings->deadlines.confirm, [this] { OnUnconfirmed(); });
}

void Allocation::OnUnconfirmed() {
  if (!process_.running()) return;
  if (Fire(AllocationEvent::kUnconfirmed) == AllocationAction::kRetryKill) KillNow();
}

Duration Allocation::teardown_deadline() const { return teardown_timer_.at(); }

void Allocation::OnClosed(const absl::Status& why) {
  // EOF is not an exit: a grandchild may hold the socket after the exit, and a worker may close it before. Only the
  // pidfd tells; the worker gets a moment to end by itself, so that its own status can be seen.
  if (!why.ok()) socket_error_ = Message(why);
  if (state_ >= AllocationState::kTeardown) return;
  silence_timer_.Arm(kSilenceGrace, [this] {
    Fault(StopCause::kProtocol, socket_error_.empty() ? "it closed its control socket and went on" : socket_error_);
  });
}

void Allocation::OnProcessEnded() {
  if (exit_.has_value()) return;
  // First out of service, so that nothing is routed here any more; then what it had still said, where a request's end
  // may be; only then its status.
  Fire(AllocationEvent::kExit);
  if (socket_ != nullptr && socket_->open()) socket_->ReadAvailable(kDrainBytes);
  process_.errors().Drain();
  exit_ = process_.Reap();
  if (!exit_.has_value()) return;
  socket_.reset();
  silence_timer_.Cancel();
  teardown_timer_.Cancel();
  watchdog_timer_.Cancel();
  // The group was killed with the leader: what it had in the pipe is there now.
  process_.errors().Drain();
  if (cause_ == StopCause::kNone && !socket_error_.empty() && exit_->signal == 0) {
    cause_ = StopCause::kProtocol;
    cause_detail_ = socket_error_;
  }
  // The leaf counts its own dead; without one the machine's counter has to do.
  const LeafReading& leaf = process_.last_reading();
  oom_kills_rose_ = leaf.counts_memory ? leaf.oom_kills > 0 : around_.memory->OutOfMemoryKills() > oom_kills_;
  const auto identity = IdentityOf(plan_.file->get());
  file_changed_ = !identity.ok() || *identity != plan_.identity;
  Fire(AllocationEvent::kReaped);
  host_->OnReaped(*this);
}

DeathEvidence Allocation::Evidence() const {
  DeathEvidence evidence;
  evidence.exit = exit_.value_or(ProcessExit{});
  evidence.cause = cause_;
  evidence.cause_detail = cause_detail_;
  evidence.signalled_by_us = signalled_;
  evidence.phase = death_phase_;
  evidence.oom_kills_rose = oom_kills_rose_;
  if (const LeafReading& leaf = process_.last_reading(); leaf.limit_hits > 0) {
    evidence.leaf_oom = {kSmallestWish, std::max(leaf.private_peak, private_bytes_), leaf.memory_max};
  }
  evidence.file_changed = file_changed_;
  return evidence;
}

void Allocation::Send(const v1::DaemonFrame& frame) {
  if (socket_ == nullptr) return;
  if (const absl::Status sent = socket_->Send(frame); !sent.ok() && ReasonOf(sent) == Reason::kLimitExceeded) {
    // It reads nothing. Later on the loop, since the caller may be in the middle of something.
    silence_timer_.Arm(Duration(0), [this] { Fault(StopCause::kProtocol, "it does not read its control socket"); });
  }
}

void Allocation::SetExpectProgress(bool expected) {
  if (state_ != AllocationState::kIdle && state_ != AllocationState::kBusy) return;
  if (expected == expect_progress_) return;
  expect_progress_ = expected;
  EnterPhase(expected ? WorkerPhase::kPrefill : WorkerPhase::kIdle);
}

void Allocation::EnterPhase(WorkerPhase phase) {
  if (phase == watchdog_.phase()) return;
  watchdog_.Enter(phase, around_.loop->now());
  ArmWatchdog();
}

void Allocation::ArmWatchdog() {
  const auto deadline = watchdog_.Deadline(around_.settings->watchdog);
  if (!deadline.has_value()) {
    watchdog_timer_.Cancel();
    return;
  }
  watchdog_timer_.Arm(*deadline - around_.loop->now(), [this] { OnWatchdog(); });
}

void Allocation::OnWatchdog() {
  // Timers run before sockets: what would prove that it moved may be waiting to be read.
  if (socket_ != nullptr && socket_->open()) socket_->ReadAvailable(kDrainBytes);
  if (state_ >= AllocationState::kTeardown) return;
  const Duration now = around_.loop->now();
  const auto deadline = watchdog_.Deadline(around_.settings->watchdog);
  if (deadline.has_value() && *deadline <= now && now - *deadline < kStoodStill) return Stalled();
  // Whoever was stopped or starved together with us could not move either: it gets the whole limit again.
  if (deadline.has_value() && *deadline <= now) watchdog_.Moved(now);
  ArmWatchdog();
}

void Allocation::Stalled() {
  Fault(StopCause::kStall, fmt::format("no progress in {} for {} ms", NameOf(watchdog_.phase()),
                                       Milliseconds(around_.loop->now() - watchdog_.last_move())));
}

}  // namespace bulkhead::supervisor
