#include <fmt/format.h>

#include <algorithm>

#include "tests/sim/simulation.h"
#include "tests/sim/violation.h"

namespace bulkhead::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint64_t kKib = 1024;
constexpr uint64_t kMib = kKib * kKib;
constexpr uint64_t kGib = kKib * kMib;

SimModel MakeModel(const char* name, uint64_t inode, uint64_t weights, uint64_t kv_per_token, uint32_t trained,
                   uint64_t recurrent = 0) {
  auto facts = std::make_shared<admission::ModelFacts>();
  facts->model = name;
  facts->file = {.device = 1, .inode = inode, .size = weights, .mtime_ns = 1};
  facts->weight_bytes = weights;
  facts->kv_bytes_per_token = kv_per_token;
  facts->recurrent_bytes_per_sequence = recurrent;
  facts->arena_bytes = 40 * kMib;
  facts->overhead_bytes = 30 * kMib;
  facts->trained_context = trained;
  return {.facts = facts};
}

std::vector<SimModel> Catalogue() {
  return {MakeModel("small", 1, 300 * kMib, 32 * kKib, 32768),
          MakeModel("small-by-another-name", 1, 300 * kMib, 32 * kKib, 32768),
          MakeModel("middle", 2, 1500 * kMib, 64 * kKib, 16384),
          MakeModel("deep", 3, 2 * kGib, 128 * kKib, 65536),
          MakeModel("big", 4, 4500 * kMib, 128 * kKib, 32768),
          MakeModel("huge", 5, 40 * kGib, 256 * kKib, 8192),
          MakeModel("recurrent", 6, 600 * kMib, 0, 0, 50 * kMib),
          MakeModel("tiny", 7, 20 * kMib, 2 * kKib, 2048),
          MakeModel("unsaid", 8, 900 * kMib, 48 * kKib, 0),
          MakeModel("absurd", 9, kMib, uint64_t{1} << 60, 8192)};
}

admission::Policy FirstPolicy() {
  admission::Policy policy;
  policy.profile = admission::Profile::kLocalFocused;
  policy.ram_bytes = 16 * kGib;
  policy.max_waiting = 20;
  policy.max_waiting_per_model = 6;
  policy.ageing_step = seconds(4);
  return policy;
}

}  // namespace

Simulation::Simulation(uint64_t seed) : rng_(seed), coordinator_(FirstPolicy()) {
  mirror_.models = Catalogue();
  mirror_.policy = FirstPolicy();
  mirror_.now = {seconds(1000), seconds(2000)};
  coordinator_.Tick(mirror_.now);
  mirror_.live = Sample();
  coordinator_.SetLiveMemory(mirror_.live);
}

void Simulation::Step(uint64_t number) {
  struct Kind {
    const char* name;
    uint32_t weight;
    void (Simulation::*make)();
  };
  static constexpr Kind kKinds[] = {{"request", 260, &Simulation::AskForModel},
                                    {"finish", 200, &Simulation::FinishSomebody},
                                    {"progress", 300, &Simulation::Progress},
                                    {"cancel", 30, &Simulation::CancelSomebody},
                                    {"out-of-order", 60, &Simulation::OutOfOrder},
                                    {"measure", 40, &Simulation::Measure},
                                    {"crash", 8, &Simulation::Crash},
                                    {"release", 10, &Simulation::ReleaseModel},
                                    {"release-idle", 6, &Simulation::ReleaseIdle},
                                    {"await", 20, &Simulation::AwaitSomebody},
                                    {"time", 50, &Simulation::PassTime},
                                    {"clock-jump", 3, &Simulation::JumpClock},
                                    {"policy", 12, &Simulation::ChangePolicy},
                                    {"live-memory", 40, &Simulation::ChangeLiveMemory},
                                    {"pin", 6, &Simulation::TogglePin},
                                    {"block", 10, &Simulation::ToggleBlock},
                                    {"file-replaced", 3, &Simulation::ReplaceFile}};
  static const uint32_t total = [] {
    uint32_t sum = 0;
    for (const Kind& kind : kKinds) sum += kind.weight;
    return sum;
  }();
  uint64_t draw = rng_.Below(total);
  const Kind* chosen = kKinds;
  while (draw >= chosen->weight) draw -= (chosen++)->weight;
  Position& at = CurrentPosition();
  at.event = number;
  at.kind = chosen->name;
  if (trace_) fmt::print("{} {} ({} waiting)\n", number, chosen->name, mirror_.Waiting());
  ++histogram_.events[chosen->name];
  (this->*chosen->make)();
  CheckAll();
}

AllocationId Simulation::PickAllocation() {
  if (mirror_.allocations.empty()) return 0;
  auto it = mirror_.allocations.begin();
  std::advance(it, static_cast<ptrdiff_t>(rng_.Below(mirror_.allocations.size())));
  return it->first;
}

AdmitRequest Simulation::RandomRequest() {
  AdmitRequest request;
  request.facts = rng_.Pick(mirror_.models).facts;
  constexpr uint32_t kContexts[] = {512, 2048, 4096, 12000, 16384, 30000, 60000, 200000};
  if (rng_.Percent(25)) request.context = kContexts[rng_.Below(std::size(kContexts))];
  if (rng_.Percent(8)) request.sequences = static_cast<uint32_t>(rng_.Between(1, 6));
  request.exact_shape = rng_.Percent(5);
  request.priority = static_cast<admission::Priority>(rng_.Below(3));
  request.may_evict = !rng_.Percent(10);
  request.deadline = rng_.Percent(5) ? Duration::max() : mirror_.now.monotonic + milliseconds(rng_.Between(1, 20'000));
  return request;
}

void Simulation::AskForModel() {
  if (mirror_.tickets.size() > 60) return FinishSomebody();
  const AdmitRequest request = RandomRequest();
  const Verdict foreseen = coordinator_.Preflight(request).verdict;
  admission::Outcome outcome = coordinator_.Request(request);
  Mix(static_cast<uint64_t>(outcome.verdict));
  if (!outcome.ticket) {
    ++histogram_.verdicts[static_cast<size_t>(outcome.verdict)];
    Require(ReasonFor(outcome.verdict) == outcome.refusal.reason, "a refusal's reason is its verdict's");
    CheckRefusal(request, outcome.refusal.reason, true);
    Require(foreseen == outcome.verdict || outcome.verdict == Verdict::kQueueFull, "preflight foresees a refusal");
    return Drain();
  }
  const TicketId id = outcome.ticket.id();
  SimTicket& ticket = mirror_.tickets[id];
  ticket.handle = std::move(outcome.ticket);
  ticket.request = request;
  ticket.arrived = mirror_.now.monotonic;
  Drain();
  const auto found = mirror_.tickets.find(id);
  Require(found != mirror_.tickets.end(), "a request is answered by Request or later, not both");
  const bool waits = found->second.place == Place::kWaiting;
  Require(waits == admission::Waits(outcome.verdict), "ALLOWED means that a lease is held");
  Require(!waits || found->second.announced == outcome.verdict, "the verdict is the one announced");
  if (!waits) ++histogram_.verdicts[static_cast<size_t>(outcome.verdict)];
  Require(!waits || foreseen != Verdict::kAllowed, "preflight foresees a wait");
}

void Simulation::EndLeaseOf(TicketId id) {
  SimTicket& ticket = mirror_.tickets.at(id);
  const auto found = mirror_.allocations.find(ticket.allocation);
  ticket.allocation = 0;
  if (found == mirror_.allocations.end()) return;
  SimAllocation& allocation = found->second;
  std::erase(allocation.leases, id);
  if (allocation.loader == id) allocation.loader_held = false;
  if (allocation.state == AllocationState::kBusy) allocation.last_used = mirror_.now.boottime;
  if (!allocation.leases.empty()) return;
  if (allocation.state == AllocationState::kBusy) allocation.state = AllocationState::kIdle;
  if (allocation.state == AllocationState::kReserved) mirror_.allocations.erase(found);
}

void Simulation::DropTicket(TicketId id) {
  EndLeaseOf(id);
  SimTicket ticket = std::move(mirror_.tickets.at(id));
  mirror_.tickets.erase(id);
  ticket.handle.Drop();
  Drain();
}

void Simulation::FinishSomebody() {
  std::vector<TicketId> running;
  for (const auto& [id, ticket] : mirror_.tickets) {
    if (ticket.place == Place::kGranted || ticket.place == Place::kOrphaned) running.push_back(id);
  }
  if (running.empty()) return;
  const TicketId id = rng_.Pick(running);
  const SimTicket& ticket = mirror_.tickets.at(id);
  const auto worker = mirror_.allocations.find(ticket.allocation);
  const bool worker_lives = worker != mirror_.allocations.end() && worker->second.state <= AllocationState::kBusy;
  if (!worker_lives && mirror_.Waiting() < 25 && rng_.Percent(50)) {
    // Replay: the ticket outlives its worker and queues again.
    EndLeaseOf(id);
    SimTicket& again = mirror_.tickets.at(id);
    again.place = Place::kWaiting;
    again.announced = Verdict::kAllowed;
    again.request.deadline = mirror_.now.monotonic + seconds(rng_.Between(1, 20));
    Require(coordinator_.Requeue(id, again.request.deadline), "a ticket can be queued again");
    return Drain();
  }
  DropTicket(id);
}

void Simulation::CancelSomebody() {
  if (mirror_.tickets.empty()) return;
  auto it = mirror_.tickets.begin();
  std::advance(it, static_cast<ptrdiff_t>(rng_.Below(mirror_.tickets.size())));
  DropTicket(it->first);
}

bool Simulation::Call(Input input, AllocationId id, uint64_t bytes) {
  switch (input) {
    case Input::kSpawnStarted:
      return coordinator_.SpawnStarted(id);
    case Input::kSpawnFailed:
      return coordinator_.SpawnFailed(id);
    case Input::kLoadStarted:
      return coordinator_.LoadStarted(id);
    case Input::kLoadFinished:
      return coordinator_.LoadFinished(id);
    case Input::kMeasured:
      return coordinator_.Measured(id, bytes);
    case Input::kStopRouting:
      return coordinator_.StopRouting(id);
    case Input::kTeardownStarted:
      return coordinator_.TeardownStarted(id);
    case Input::kKillUnconfirmed:
      return coordinator_.KillUnconfirmed(id);
    case Input::kReaped:
      return coordinator_.Reaped(id);
    case Input::kSettle:
      return coordinator_.Settle(id);
    case Input::kFree:
      return coordinator_.Free(id);
  }
  return false;
}

bool Simulation::Give(Input input, AllocationId id, uint64_t bytes) {
  const auto found = mirror_.allocations.find(id);
  const bool exists = found != mirror_.allocations.end();
  const AllocationState from = exists ? found->second.state : AllocationState::kFreed;
  ++histogram_.cells[static_cast<size_t>(from)][static_cast<size_t>(input)];
  if (trace_) fmt::print("  {} {} in {}\n", NameOf(input), id, NameOf(from));
  const auto to = After(from, input);
  const bool accepted = Call(input, id, bytes);
  if (accepted != to.has_value()) {
    Violated(fmt::format("{} in {} is {}", NameOf(input), NameOf(from), to.has_value() ? "a legal move" : "refused"));
  }
  if (to.has_value()) Follow(input, id, *to, bytes);
  Drain();
  return accepted;
}

void Simulation::Follow(Input input, AllocationId id, AllocationState to, uint64_t bytes) {
  if (to == AllocationState::kFreed) return Freed(id);
  SimAllocation& allocation = mirror_.allocations.at(id);
  allocation.state = to;
  switch (input) {
    case Input::kLoadFinished:
      if (!allocation.leases.empty()) allocation.state = AllocationState::kBusy;
      if (allocation.loader_held) {
        Require(coordinator_.LeaseOf(allocation.loader) == id, "the loader holds its lease before LOADING ends");
      }
      allocation.last_used = mirror_.now.boottime;
      break;
    case Input::kMeasured: {
      const uint64_t before = allocation.Charge();
      allocation.resident = bytes;
      allocation.worst = std::max(allocation.worst, bytes);
      growth_ += allocation.Charge() - before;
      break;
    }
    case Input::kStopRouting:
      allocation.stopped = true;
      break;
    case Input::kReaped:
      allocation.resident = 0;
      mirror_.live_stale = true;
      break;
    default:
      break;
  }
}

void Simulation::Freed(AllocationId id) {
  for (const TicketId ticket : mirror_.allocations.at(id).leases) {
    SimTicket& orphan = mirror_.tickets.at(ticket);
    orphan.place = Place::kOrphaned;
    orphan.allocation = 0;
  }
  mirror_.allocations.erase(id);
}

void Simulation::Progress() {
  const AllocationId id = PickAllocation();
  if (id == 0) return;
  const SimAllocation& allocation = mirror_.allocations.at(id);
  switch (allocation.state) {
    case AllocationState::kReserved:
      Give(rng_.Percent(92) ? Input::kSpawnStarted : Input::kSpawnFailed, id);
      break;
    case AllocationState::kStarting:
      Give(Input::kLoadStarted, id);
      break;
    case AllocationState::kLoading:
      if (rng_.Percent(85)) {
        Give(Input::kLoadFinished, id);
      } else {
        Fail(id, rng_.Percent(50));
      }
      break;
    case AllocationState::kTeardown:
      Give(rng_.Percent(90) ? Input::kReaped : Input::kKillUnconfirmed, id);
      break;
    case AllocationState::kStuck:
      if (rng_.Percent(40)) Give(Input::kReaped, id);
      break;
    case AllocationState::kReaped:
      Give(Input::kSettle, id);
      break;
    case AllocationState::kSettled:
      Give(Input::kFree, id);
      break;
    default:
      Measure();
      break;
  }
}

void Simulation::Fail(AllocationId id, bool out_of_memory) {
  if (out_of_memory) {
    (void)coordinator_.RanOutOfMemory(id, RandomReading(mirror_.allocations.at(id)));
    Drain();
  }
  Give(Input::kTeardownStarted, id);
}

void Simulation::OutOfOrder() {
  // Any input, in any state, also of an allocation that is gone or never was.
  AllocationId id = rng_.Percent(80) ? PickAllocation() : rng_.Between(0, mirror_.last_id + 2);
  const auto input = static_cast<Input>(rng_.Below(kInputCount));
  const auto found = mirror_.allocations.find(id);
  Give(input, id, found == mirror_.allocations.end() ? kMib : RandomReading(found->second));
}

uint64_t Simulation::RandomReading(const SimAllocation& allocation) {
  const auto manifest = admission::EstimateCharge(*allocation.facts, allocation.shape);
  return manifest->Private() / 100 * rng_.Between(30, rng_.Percent(15) ? 115 : 100);
}

void Simulation::Measure() {
  const AllocationId id = PickAllocation();
  if (id != 0) Give(Input::kMeasured, id, RandomReading(mirror_.allocations.at(id)));
}

void Simulation::Crash() {
  const AllocationId id = PickAllocation();
  if (id != 0) Give(Input::kTeardownStarted, id);
}

void Simulation::ReleaseModel() {
  const AllocationId id = PickAllocation();
  if (id == 0) return;
  Give(Input::kStopRouting, id);
  const auto found = mirror_.allocations.find(id);
  if (found == mirror_.allocations.end()) return;
  if (found->second.state == AllocationState::kIdle || rng_.Percent(30)) Give(Input::kTeardownStarted, id);
}

void Simulation::ReleaseIdle() {
  const Duration idle_for = seconds(rng_.Below(20));
  std::vector<AllocationId> expected;
  for (const AllocationId id : mirror_.IdleUnpinned()) {
    if (mirror_.now.boottime - mirror_.allocations.at(id).last_used >= idle_for) expected.push_back(id);
  }
  Require(coordinator_.ReleaseIdle(idle_for) == expected,
          "an idle sweep takes exactly the workers idle for long enough");
  Drain();
}

void Simulation::AwaitSomebody() {
  const AllocationId id = rng_.Percent(70) ? PickAllocation() : rng_.Between(0, mirror_.last_id + 1);
  const uint64_t token = next_token_++;
  const bool known = id != 0 && id <= mirror_.last_id;
  if (known) mirror_.awaited.emplace(token, id);
  Require(coordinator_.AwaitRetired(id, token) == known, "a retirement of an allocation that was can be awaited");
  Drain();
}

void Simulation::PassTime() {
  const Duration by = milliseconds(rng_.Between(0, 400));
  mirror_.now.monotonic += by;
  mirror_.now.boottime += by;
  coordinator_.Tick(mirror_.now);
  Drain();
}

void Simulation::JumpClock() {
  const Duration by = seconds(rng_.Between(5, 600));
  if (rng_.Percent(30)) mirror_.now.monotonic += by;
  mirror_.now.boottime += by;
  coordinator_.Tick(mirror_.now);
  Drain();
  // A clock that reads earlier than before changes nothing.
  coordinator_.Tick({mirror_.now.monotonic - seconds(1), mirror_.now.boottime - seconds(1)});
  Drain();
}

void Simulation::ChangePolicy() {
  admission::Policy policy = FirstPolicy();
  policy.profile = static_cast<admission::Profile>(rng_.Below(3));
  policy.custom_bytes = rng_.Percent(20) ? 0 : rng_.Between(1, 12) * kGib;
  if (rng_.Percent(20)) policy.cgroup_limit_bytes = rng_.Between(6, 20) * kGib;
  const bool stale = rng_.Percent(30);
  const uint64_t generation = stale ? rng_.Between(0, mirror_.generation) : mirror_.generation + rng_.Between(1, 3);
  if (!stale) {
    mirror_.policy = policy;
    mirror_.generation = generation;
  }
  Require(coordinator_.SetPolicy(policy, generation) == !stale, "the policy's generation only moves forward");
  Drain();
}

admission::LiveMemory Simulation::Sample() {
  admission::LiveMemory memory{.total_bytes = 16 * kGib, .available_bytes = 16 * kGib - others_bytes_};
  for (const auto& [id, allocation] : mirror_.allocations) {
    memory.available_bytes -= std::min(memory.available_bytes, allocation.resident);
  }
  return memory;
}

void Simulation::ChangeLiveMemory() {
  if (rng_.Percent(30)) others_bytes_ = rng_.Between(1, rng_.Percent(30) ? 13 : 6) * kGib;
  mirror_.live = rng_.Percent(5) ? std::nullopt : std::optional(Sample());
  mirror_.live_stale = false;
  coordinator_.SetLiveMemory(mirror_.live);
  Drain();
}

void Simulation::TogglePin() {
  SimModel& model = mirror_.models[rng_.Below(mirror_.models.size())];
  model.pinned = !model.pinned && rng_.Percent(40);
  coordinator_.SetPinned(model.facts->model, model.pinned);
  Drain();
}

void Simulation::ToggleBlock() {
  SimModel& model = mirror_.models[rng_.Below(mirror_.models.size())];
  const uint64_t draw = rng_.Below(8);
  model.block = draw == 0 ? Verdict::kBreakerOpen : draw == 1 ? Verdict::kModelMaintenance : Verdict::kAllowed;
  coordinator_.SetBlocked(model.facts->model, model.block, seconds(10));
  Drain();
}

void Simulation::ReplaceFile() {
  SimModel& model = mirror_.models[rng_.Below(mirror_.models.size())];
  auto facts = std::make_shared<admission::ModelFacts>(*model.facts);
  facts->file.inode = next_inode_++;
  model.facts = facts;
}

}  // namespace bulkhead::sim
