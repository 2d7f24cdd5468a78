#include <fmt/format.h>

#include <algorithm>

#include "tests/sim/simulation.h"
#include "tests/sim/violation.h"

namespace bulkhead::sim {
namespace {

constexpr const char* kActionNames[] = {"spawn", "bound",   "grant",       "queued", "refuse",
                                        "evict", "confirm", "unconfirmed", "sample"};

bool IsComing(AllocationState state) {
  return state == AllocationState::kReserved || state == AllocationState::kStarting ||
         state == AllocationState::kLoading;
}

}  // namespace

void Simulation::Mix(uint64_t value) {
  digest_ = (digest_ ^ value) * 0x100000001B3;
  digest_ ^= digest_ >> 29;
}

void Simulation::Drain() {
  for (const admission::Action& action : coordinator_.TakeActions()) {
    ++histogram_.actions[kActionNames[action.index()]];
    Mix(action.index());
    std::visit([this](const auto& one) { On(one); }, action);
  }
}

void Simulation::On(const admission::SpawnAction& action) {
  const auto found = mirror_.tickets.find(action.ticket);
  Require(found != mirror_.tickets.end() && found->second.place == Place::kWaiting, "a spawn is for a waiting ticket");
  SimTicket& ticket = found->second;
  const auto& facts = ticket.request.facts;
  Require(action.allocation > mirror_.last_id, "allocation ids only ascend");
  Require(mirror_.Current(facts->model) == nullptr, "a model has one worker that takes leases");
  Require(!mirror_.HasPredecessor(facts->model), "a model's next worker waits for the end of the one before");
  Require(action.shape.sequences >= 1 && action.shape.context >= ticket.request.context, "the pool serves its request");
  mirror_.last_id = action.allocation;
  SimAllocation& allocation = mirror_.allocations[action.allocation];
  allocation.id = action.allocation;
  allocation.facts = facts;
  allocation.shape = action.shape;
  allocation.estimate = action.estimate.Private();
  allocation.loader = action.ticket;
  allocation.leases = {action.ticket};
  allocation.last_used = mirror_.now.boottime;
  ticket.place = Place::kBound;
  ticket.allocation = action.allocation;
  Require(mirror_.Charged({}, {}) <= mirror_.ceiling(), "a worker is admitted only within the ceiling");
  Require(mirror_.FitsLive({}, {}), "a worker is admitted only within live memory");
  CheckPromises(action.ticket);
  Mix(action.allocation ^ (uint64_t{action.shape.context} << 20) ^ action.shape.sequences);
  if (trace_) {
    fmt::print("    spawn {} for ticket {} ({}, {}x{})\n", action.allocation, action.ticket, facts->model,
               action.shape.sequences, action.shape.context);
  }
}

// Waiters ahead of the one just served, as long as it is certain that memory was promised to them: what they wait for
// must still fit beside everything charged.
void Simulation::CheckPromises(TicketId spawned_for) {
  const SimTicket& served = mirror_.tickets.at(spawned_for);
  const int64_t step = mirror_.policy.ageing_step.count();
  const auto rank = [&](const SimTicket& ticket) {
    const int64_t aged = step > 0 ? (mirror_.now.monotonic - ticket.arrived).count() / step : 0;
    return std::max<int64_t>(static_cast<int64_t>(ticket.request.priority) - aged, 0);
  };
  std::vector<Want> promised;
  std::set<std::string> promised_models;  // the next worker of a model is promised once, to the first of its waiters
  Mirror::Gone without_new = mirror_.Leaving(false);
  without_new.insert(served.allocation);
  for (const TicketId id : mirror_.Order()) {
    const SimTicket& ticket = mirror_.tickets.at(id);
    if (std::pair(rank(ticket), id) > std::pair(rank(served), spawned_for)) break;
    const std::string& model = ticket.request.facts->model;
    const SimAllocation* current = mirror_.Current(model);
    if (model == served.request.facts->model) break;
    if (current != nullptr && mirror_.Serves(*current, ticket.request)) continue;
    if (!promised_models.insert(model).second) continue;
    const auto want = Mirror::Smallest(ticket.request, coordinator_.learned());
    if (current != nullptr || !ticket.request.may_evict || !want.has_value()) break;
    promised.push_back(*want);
    if (!mirror_.Fits(without_new, promised)) break;
    Require(mirror_.Fits({}, promised), "memory promised to a waiter is not given to one behind it");
  }
}

void Simulation::On(const admission::BoundAction& action) {
  SimTicket& ticket = mirror_.tickets.at(action.ticket);
  SimAllocation& allocation = mirror_.allocations.at(action.allocation);
  Require(ticket.place == Place::kWaiting, "only a waiting ticket is bound");
  Require(IsComing(allocation.state), "a ticket is bound to a worker that is on its way");
  Require(ticket.request.context <= allocation.shape.context, "the pool serves its request");
  allocation.leases.push_back(action.ticket);
  Require(allocation.leases.size() <= allocation.shape.sequences, "no more leases than sequences");
  ticket.place = Place::kBound;
  ticket.allocation = action.allocation;
  Mix(action.ticket);
}

void Simulation::On(const admission::GrantAction& action) {
  const auto found = mirror_.tickets.find(action.ticket);
  Require(found != mirror_.tickets.end(), "a grant is for a ticket that lives");
  SimTicket& ticket = found->second;
  const auto worker = mirror_.allocations.find(action.allocation);
  Require(worker != mirror_.allocations.end(), "a grant is on an allocation that lives");
  SimAllocation& allocation = worker->second;
  Require(allocation.state == AllocationState::kIdle || allocation.state == AllocationState::kBusy,
          "a grant is on a worker that is ready");
  Require(ticket.request.context <= allocation.shape.context, "the pool serves its request");
  if (ticket.place == Place::kWaiting) {
    Require(!allocation.stopped, "a draining worker takes no new lease");
    allocation.leases.push_back(action.ticket);
  } else {
    Require(ticket.place == Place::kBound && ticket.allocation == action.allocation, "a ticket is granted once");
  }
  const auto loader = mirror_.tickets.find(allocation.loader);
  const bool loader_unserved = allocation.loader_held && loader != mirror_.tickets.end() &&
                               loader->second.allocation == allocation.id && loader->second.place == Place::kBound;
  Require(!loader_unserved || action.ticket == allocation.loader, "the request that loaded a worker is served first");
  Require(allocation.leases.size() <= allocation.shape.sequences, "no more leases than sequences");
  ticket.place = Place::kGranted;
  ticket.allocation = action.allocation;
  allocation.state = AllocationState::kBusy;
  Mix(action.ticket ^ (action.allocation << 32));
  if (trace_) fmt::print("    grant {} to ticket {}\n", action.allocation, action.ticket);
}

void Simulation::On(const admission::QueuedAction& action) {
  ++histogram_.verdicts[static_cast<size_t>(action.verdict)];
  const auto found = mirror_.tickets.find(action.ticket);
  // Told before somebody later in the same turn made room for it: then it is refused or served, which follows.
  Require(found != mirror_.tickets.end(), "a ticket that is told to wait lives");
  Require(admission::Waits(action.verdict), "a ticket waits with a waiting verdict");
  Require(found->second.place == Place::kWaiting, "a ticket that is told to wait waits");
  found->second.announced = action.verdict;
  Mix(action.ticket ^ (static_cast<uint64_t>(action.verdict) << 40));
  if (trace_) fmt::print("    ticket {} waits: {}\n", action.ticket, NameOf(action.verdict));
}

void Simulation::On(const admission::RefuseAction& action) {
  const auto found = mirror_.tickets.find(action.ticket);
  Require(found != mirror_.tickets.end(), "a refusal is for a ticket that lives");
  SimTicket& ticket = found->second;
  Require(ticket.place == Place::kWaiting || ticket.place == Place::kBound, "nobody is refused after the grant");
  const bool due = ticket.request.deadline <= mirror_.now.monotonic;
  if (!due) CheckRefusal(ticket.request, action.refusal.reason, false);
  if (ticket.place == Place::kBound) {
    Require(due, "a bound ticket is refused by its deadline only");
    Require(action.refusal.reason == Reason::kQueueDeadlineExceeded,
            "a bound ticket ends with QUEUE_DEADLINE_EXCEEDED");
    EndLeaseOf(action.ticket);
  }
  Require(!action.refusal.message.empty(), "a refusal says why");
  Mix(action.ticket ^ static_cast<uint64_t>(action.refusal.reason));
  if (trace_) fmt::print("    refuse ticket {}: {}\n", action.ticket, action.refusal.message);
  mirror_.tickets.erase(found);
}

// That the reason given is true.
void Simulation::CheckRefusal(const AdmitRequest& request, Reason reason, bool at_once) {
  const std::string& model = request.facts->model;
  const auto want = Mirror::Smallest(request, coordinator_.learned());
  const bool exceeds = !want.has_value() || want->private_bytes > UINT64_MAX - want->weights ||
                       want->weights + want->private_bytes > mirror_.ceiling();
  const uint32_t trained = request.facts->trained_context;
  switch (reason) {
    case Reason::kDisabledByPolicy:
      return Require(mirror_.ceiling() == 0, "DISABLED_BY_POLICY means a ceiling of 0");
    case Reason::kExceedsCeiling:
      return Require(exceeds, "EXCEEDS_CEILING means more than the ceiling");
    case Reason::kContextTooLarge:
      return Require((trained != 0 && request.context > trained) || exceeds || mirror_.PinnedModel(model),
                     "CONTEXT_TOO_LARGE means beyond what can be had");
    case Reason::kLiveMemoryUnknown:
      return Require(!mirror_.live.has_value(), "LIVE_MEMORY_UNKNOWN means it cannot be read");
    case Reason::kBreakerOpen:
      return Require(mirror_.BlockOf(model) == Verdict::kBreakerOpen, "BREAKER_OPEN means an open breaker");
    case Reason::kModelMaintenance:
      return Require(mirror_.BlockOf(model) == Verdict::kModelMaintenance, "MODEL_MAINTENANCE means maintenance");
    case Reason::kQueueFull:
      return Require(at_once && (mirror_.Waiting() >= mirror_.policy.max_waiting ||
                                 mirror_.WaitingFor(model) >= mirror_.policy.max_waiting_per_model),
                     "QUEUE_FULL means a full queue");
    default:
      Violated("a request is refused early only for a reason that is final");
  }
}

void Simulation::On(const admission::EvictAction& action) {
  const auto found = mirror_.allocations.find(action.allocation);
  Require(found != mirror_.allocations.end(), "an eviction is of an allocation that lives");
  SimAllocation& allocation = found->second;
  Require(allocation.state == AllocationState::kIdle && allocation.leases.empty(), "busy workers are never evicted");
  Require(!mirror_.PinnedModel(allocation.facts->model), "pinned workers are never evicted");
  if (action.cause == admission::EvictionCause::kPressure) {
    const Want relief{.file = {}, .weights = 0, .private_bytes = admission::PressureRelief(mirror_.live->total_bytes)};
    Require(!mirror_.FitsLive(mirror_.Leaving(true), {relief}), "only as many go as bring the relief");
  }
  allocation.state = AllocationState::kTeardown;
  Mix(action.allocation ^ (static_cast<uint64_t>(action.cause) << 50));
  if (trace_) fmt::print("    evict {} ({})\n", action.allocation, NameOf(action.cause));
}

void Simulation::On(const admission::ConfirmAction& action) {
  const auto found = mirror_.awaited.find(action.token);
  Require(found != mirror_.awaited.end() && found->second == action.allocation, "each token is confirmed once");
  Require(!mirror_.allocations.contains(action.allocation), "confirmed only after reap, settlement and retirement");
  mirror_.awaited.erase(found);
  Mix(action.token);
}

void Simulation::On(const admission::UnconfirmedAction& action) {
  Require(mirror_.awaited.contains(action.token), "an unconfirmed token is one that waits");
  const auto found = mirror_.allocations.find(action.allocation);
  Require(found != mirror_.allocations.end() && found->second.state == AllocationState::kStuck,
          "unconfirmed means STUCK");
}

void Simulation::On(const admission::SampleMemoryAction& /*action*/) {}

}  // namespace bulkhead::sim
