#include <fmt/format.h>

#include <algorithm>

#include "tests/sim/simulation.h"
#include "tests/sim/violation.h"

namespace bulkhead::sim {

void Simulation::CheckAll() {
  CheckLedger();
  CheckCeiling();
  CheckWaiters();
  CheckConfirmations();
}

void Simulation::CheckLedger() {
  const auto& entries = coordinator_.ledger().entries();
  Require(entries.size() == mirror_.allocations.size(), "the ledger holds exactly the allocations that are not freed");
  for (const auto& [id, allocation] : mirror_.allocations) {
    const admission::LedgerEntry* entry = coordinator_.ledger().Find(id);
    Require(entry != nullptr, "every live process is in the ledger");
    Require(entry->state == allocation.state, "the ledger's state is the process's");
    Require(entry->PrivateCharge() == allocation.Charge(), "a charge is max(estimate, measured)");
    Require(entry->leases == allocation.leases, "leases are those granted, in their order");
  }
  const admission::Budget budget = coordinator_.budget();
  Require(budget.charged_bytes == mirror_.Charged({}, {}), "charges add up, weights once per file");
  Require(budget.generation == mirror_.generation, "the policy's generation only moves forward");
  Require(budget.ceiling_bytes == mirror_.ceiling(), "the ceiling is that of the newest policy");
}

void Simulation::CheckCeiling() {
  const uint64_t charged = mirror_.Charged({}, {});
  const uint64_t explained = std::max(mirror_.ceiling(), charged_before_ + growth_);
  Require(charged <= explained, "charges exceed the ceiling only by measured growth or a shrunk policy");
  if (charged > mirror_.ceiling()) {
    // Being answered: either what is leaving is enough, or nothing idle is left that may go.
    Require(mirror_.Charged(mirror_.Leaving(true), {}) <= mirror_.ceiling() || mirror_.IdleUnpinned().empty(),
            "above the ceiling idle workers are released");
  }
  charged_before_ = charged;
  growth_ = 0;
}

void Simulation::CheckWaiters() {
  bool first_for_memory = true;
  for (const TicketId id : mirror_.Order()) {
    const SimTicket& ticket = mirror_.tickets.at(id);
    const std::string& model = ticket.request.facts->model;
    Require(ticket.request.deadline > mirror_.now.monotonic, "nobody waits past the deadline");
    Require(admission::Waits(ticket.announced), "every waiter was told why");
    Require(mirror_.BlockOf(model) == Verdict::kAllowed, "nobody waits for a blocked model");
    Require(mirror_.ceiling() != 0, "nobody waits where the policy allows nothing");
    const SimAllocation* current = mirror_.Current(model);
    if (current != nullptr && mirror_.Serves(*current, ticket.request)) {
      const bool retiring = coordinator_.ledger().Find(current->id)->retiring;
      const bool room = current->leases.size() < current->shape.sequences;
      if (!current->stopped && !retiring && room) {
        Violated(fmt::format("no wake-up is lost: ticket {} waits ({}) though allocation {} of {} has a free sequence",
                             id, NameOf(ticket.announced), current->id, model));
      }
      continue;
    }
    if (first_for_memory && current == nullptr) CheckFirstForMemory(ticket);
    first_for_memory = false;
  }
  for (const auto& [id, entry] : coordinator_.ledger().entries()) {
    if (!entry.retiring) continue;
    const bool justified = std::any_of(mirror_.tickets.begin(), mirror_.tickets.end(), [&](const auto& item) {
      const SimTicket& ticket = item.second;
      return ticket.place == Place::kWaiting && ticket.request.facts->model == entry.facts->model &&
             !mirror_.Serves(mirror_.allocations.at(entry.id), ticket.request);
    });
    Require(justified, "a worker retires only for a waiter it cannot serve");
  }
}

// Nothing is promised ahead of this one: what there is, or can be made, is its own.
void Simulation::CheckFirstForMemory(const SimTicket& ticket) {
  const auto want = Mirror::Smallest(ticket.request, coordinator_.learned());
  Require(want.has_value() && want->weights + want->private_bytes <= mirror_.ceiling(),
          "nobody waits for more than the ceiling");
  if (!mirror_.HasPredecessor(ticket.request.facts->model)) {
    Require(!mirror_.Fits({}, {*want}), "no wake-up is lost: memory that is free is used");
  }
  if (!ticket.request.may_evict || !mirror_.live.has_value()) return;
  const Mirror::Gone leaving = mirror_.Leaving(false);
  Mirror::Gone all = leaving;
  for (const AllocationId id : mirror_.IdleUnpinned()) all.insert(id);
  const bool unsure = mirror_.live_stale && mirror_.Charged(leaving, {*want}) <= mirror_.ceiling();
  if (!unsure && mirror_.Fits(all, {*want})) {
    if (!mirror_.Fits(leaving, {*want})) {
      Violated(fmt::format("idle workers are released for a waiter that then fits: {} of model {} needs {} + {}",
                           NameOf(ticket.announced), ticket.request.facts->model, want->weights, want->private_bytes));
    }
  }
}

void Simulation::CheckConfirmations() {
  for (const auto& [token, id] : mirror_.awaited) {
    Require(mirror_.allocations.contains(id), "whoever awaits a retirement is told of it");
  }
}

}  // namespace bulkhead::sim
