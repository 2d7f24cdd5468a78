// Construction, the coordinator's actions, and what surrounds both.
#include "supervisor/supervisor.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "supervisor/peaks.h"
#include "supervisor/refusal.h"

namespace bulkhead::supervisor {
namespace {

constexpr size_t kEndedIds = 4096;
[[maybe_unused]] constexpr uint64_t kDataMargin = 64 << 20;

template <typename... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <typename... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

}  // namespace

Supervisor::Supervisor(WorkerOffload::Options options)
    : options_(std::move(options)),
      settings_(options_.settings),
      loop_(options_.loop, options_.clock == nullptr ? SystemClock() : *options_.clock),
      sockets_(options_.loop),
      self_(std::make_shared<Supervisor*>(this)),
      around_{&loop_, &sockets_, options_.launcher, options_.memory, &settings_},
      boot_file_(options_.loop, options_.state_directory, "boot", [this](std::string text) { Warn(std::move(text)); }),
      peaks_file_(options_.loop, options_.state_directory, "peaks",
                  [this](std::string text) { Warn(std::move(text)); }),
      deaths_(options_.loop, options_.state_directory, [this](std::string text) { Warn(std::move(text)); }),
      inspector_(loop_, *options_.launcher, settings_),
      coordinator_timer_(loop_),
      sample_timer_(loop_),
      idle_timer_(loop_),
      cpus_(ReadMachineCpus()),
      ended_(kEndedIds),
      shutdown_timer_(loop_) {
  coordinator_ = std::make_shared<admission::AdmissionCoordinator>(MakePolicy());
  coordinator_->SetActionHook([this] { ScheduleActions(); });
  boot_ = NextBoot();
  LoadPeaks();
  SampleMemory();
}

Supervisor::~Supervisor() {
  *self_ = nullptr;
  coordinator_->SetActionHook(nullptr);
}

admission::Policy Supervisor::MakePolicy() const {
  const ResourcePolicy wanted = options_.policy ? options_.policy() : ResourcePolicy{};
  const MachineMemory machine = options_.memory->Machine();
  admission::Policy policy;
  policy.profile = admission::ProfileFromName(wanted.profile).value_or(admission::Profile::kEveryday);
  policy.custom_bytes = wanted.custom_bytes;
  policy.ram_bytes = machine.total;
  policy.cgroup_limit_bytes = machine.cgroup_limit;
  policy.max_waiting = settings_.queue.total;
  policy.max_waiting_per_model = settings_.queue.per_model;
  policy.ageing_step = settings_.queue.ageing;
  return policy;
}

void Supervisor::RefreshPolicy(uint64_t generation) {
  if (generation <= policy_generation_) return;
  if (Coordinator().SetPolicy(MakePolicy(), generation)) policy_generation_ = generation;
}

void Supervisor::SetSettings(const SupervisionSettings& settings) {
  settings_ = settings;
  ArmIdleSweep();
  // The queue's bounds are part of admission's policy.
  RefreshPolicy(policy_generation_ + 1);
}

// Ids of this life of the daemon are told from all earlier ones by a number kept on disk. Where it cannot be kept, or
// was kept once and cannot be read, the seconds since 1970 stand in: larger than any counter, and later ones are larger
// still.
uint64_t Supervisor::NextBoot() {
  uint64_t last = 0;
  bool known = options_.state_directory.empty() ? false : true;
  if (const auto text = boot_file_.Load(); text.has_value()) {
    const auto parsed = std::from_chars(text->data(), text->data() + text->size(), last);
    if (parsed.ec != std::errc() || last == UINT64_MAX) {
      boot_file_.SetAside("not a number");
      known = false;
    }
  } else if (known) {
    known = !boot_file_.WasKept();
  }
  const auto seconds = static_cast<uint64_t>(loop_.clock().Wall() / std::chrono::seconds(1));
  uint64_t boot = known ? last + 1 : std::max(seconds, last + 1);
  if (const absl::Status saved = boot_file_.SaveNow(fmt::format("{}\n", boot)); !saved.ok()) {
    Warn(Message(saved));
    boot = std::max(seconds, boot);
  }
  return boot;
}

void Supervisor::LoadPeaks() {
  const auto bytes = peaks_file_.Load();
  if (!bytes.has_value()) return;
  const auto rows = ParsePeaks(*bytes);
  if (rows.ok()) {
    coordinator_->learned().Import(*rows);
  } else {
    peaks_file_.SetAside(Message(rows.status()));
  }
}

void Supervisor::SavePeaks() { peaks_file_.Save(FormatPeaks(coordinator_->learned().Export())); }

void Supervisor::Warn(std::string text) {
  if (options_.warn) options_.warn(std::move(text));
}

void Supervisor::Emit(const std::string& subject, std::string_view what, const std::string& model, std::string detail) {
  if (!options_.observer) return;
  LifecycleEvent event{loop_.clock().Wall(), subject, what, model, std::move(detail), std::nullopt};
  loop_.Post([this, event = std::move(event)] { options_.observer(event); });
}

void Supervisor::EmitState(const Inference& inference, std::string detail) {
  if (!options_.observer) return;
  LifecycleEvent event{loop_.clock().Wall(),         inference.id,      NameOf(inference.state),
                       inference.request.model.name, std::move(detail), inference.request.uid};
  loop_.Post([this, event = std::move(event)] { options_.observer(event); });
}

// --- The coordinator.

admission::AdmissionCoordinator& Supervisor::Coordinator() {
  coordinator_->Tick({loop_.now(), loop_.clock().Boottime()});
  return *coordinator_;
}

void Supervisor::ScheduleActions() {
  if (std::exchange(actions_scheduled_, true)) return;
  loop_.Post([this] { ProcessActions(); });
}

void Supervisor::ProcessActions() {
  actions_scheduled_ = false;
  while (true) {
    const std::vector<admission::Action> actions = Coordinator().TakeActions();
    if (actions.empty()) break;
    for (const admission::Action& action : actions) {
      std::visit(Overloaded{
                     [this](const admission::SpawnAction& spawn) { OnSpawn(spawn); },
                     [this](const admission::BoundAction& bound) { OnBound(bound); },
                     [this](const admission::GrantAction& grant) { OnGrant(grant); },
                     [this](const admission::QueuedAction& queued) { OnQueued(queued); },
                     [this](const admission::RefuseAction& refuse) { OnRefuse(refuse); },
                     [this](const admission::EvictAction& evict) { OnEvict(evict); },
                     [this](const admission::SampleMemoryAction&) { SampleMemory(); },
                     // Ends of allocations are waited for here, not there.
                     [](const admission::ConfirmAction&) {},
                     [](const admission::UnconfirmedAction&) {},
                 },
                 action);
    }
  }
  // What the actions scheduled of themselves was taken by the loop above.
  ArmCoordinatorTimer();
}

void Supervisor::ArmCoordinatorTimer() {
  if (const auto next = coordinator_->NextDeadline(); next.has_value()) {
    coordinator_timer_.Arm(std::max(*next - loop_.now(), Duration(0)), [this] { ProcessActions(); });
  } else {
    coordinator_timer_.Cancel();
  }
  ArmSampling();
}

// Soft limit of a worker's private memory: what it is charged, and a margin for what an estimate cannot know.
uint64_t Supervisor::DataLimit(const admission::Charge& estimate) const {
#ifdef BULKHEAD_SANITIZER
  (void)estimate;
  return 0;
#else
  return estimate.Private() + std::max(kDataMargin, estimate.Private() / 8);
#endif
}

void Supervisor::OnSpawn(const admission::SpawnAction& action) {
  // Everybody's deadline may have passed since: the reservation went with them.
  if (coordinator_->ledger().Find(action.allocation) == nullptr) return;
  Inference* loader = ByTicket(action.ticket);
  if (loader == nullptr) {
    // It was dropped between the reservation and now, and the reservation with it.
    Coordinator().SpawnFailed(action.allocation);
    return;
  }
  Allocation::Plan plan;
  plan.number = action.allocation;
  plan.model = loader->facts->model;
  plan.id = fmt::format("{}#{}.{}", plan.model, boot_, action.allocation);
  plan.passed = loader->request.model.passed;
  plan.uid = loader->request.model.uid;
  plan.file = loader->request.model.file;
  plan.identity = loader->facts->file;
  plan.shape = action.shape;
  plan.threads = settings_.model.threads > 0 ? settings_.model.threads : cpus_.usable;
  plan.weight_bytes = action.estimate.weights;
  plan.data_soft_bytes = DataLimit(action.estimate);
  if (plan.data_soft_bytes > 0) {
    plan.data_hard_bytes = std::max(plan.data_soft_bytes, coordinator_->budget().ceiling_bytes);
  }
  Held& held = allocations_[action.allocation];
  held.process = std::make_unique<Allocation>(std::move(plan), around_, static_cast<Allocation::Host&>(*this));
  // Others may have been bound to it already: they end with it, too.
  std::vector<std::string> bound;
  for (const Inference* inference : OnAllocation(action.allocation)) bound.push_back(inference->id);
  if (const absl::Status launched = held.process->Launch(); !launched.ok()) {
    const std::string model = held.process->plan().model;
    loop_.Post([this, number = action.allocation] {
      allocations_.erase(number);
      CheckShutdown();
    });
    EndRequests(bound, OffloadError::Of(launched), false);
    return;
  }
  ReportProgress(*held.process, {"spawn", 0, 0});
}

// It waits for a load that somebody else's request began; the next progress of that is told to it as well.
void Supervisor::OnBound(const admission::BoundAction& action) {
  Inference* inference = ByTicket(action.ticket);
  if (inference == nullptr || inference->sink == nullptr) return;
  loop_.Post([sink = inference->sink] { sink->OnLoading({"spawn", 0, 0}); });
}

void Supervisor::OnQueued(const admission::QueuedAction& action) {
  Inference* inference = ByTicket(action.ticket);
  if (inference == nullptr || inference->sink == nullptr) return;
  QueuedEvent event{action.position, std::string(admission::NameOf(action.verdict))};
  loop_.Post([sink = inference->sink, event = std::move(event)] { sink->OnQueued(event); });
}

void Supervisor::OnRefuse(const admission::RefuseAction& action) {
  Inference* inference = ByTicket(action.ticket);
  if (inference == nullptr || WaitsForBreaker(*inference, action.refusal.reason, action.refusal.retry_after)) return;
  EndError(*inference, ErrorOf(action.refusal));
}

void Supervisor::OnEvict(const admission::EvictAction& action) {
  Held* held = FindHeld(action.allocation);
  if (held == nullptr) return;
  const bool idle = action.cause == admission::EvictionCause::kIdleTooLong;
  held->process->Stop(idle ? StopCause::kIdle : StopCause::kEvict, Allocation::Patience::kNone);
}

Supervisor::Held* Supervisor::FindHeld(admission::AllocationId number) {
  const auto found = allocations_.find(number);
  return found == allocations_.end() ? nullptr : &found->second;
}

}  // namespace bulkhead::supervisor
