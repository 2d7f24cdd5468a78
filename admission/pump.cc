// How the AdmissionCoordinator looks at its waiters.
#include <algorithm>
#include <utility>

#include "admission/coordinator.h"
#include "admission/mutant.h"

namespace bulkhead::admission {
namespace {

// A waiter for memory that was passed over this often keeps what is free until it fits.
constexpr uint32_t kBarrierAfter = 8;

// The model's next worker is promised to `claimant` already, and will serve this request too.
Assessment Behind(const Assessment& assessment, const TicketRecord& claimant) {
  const bool for_memory = assessment.kind == Assessment::Kind::kLoad ||
                          (assessment.kind == Assessment::Kind::kWait && !assessment.for_sequence);
  if (!for_memory) return assessment;
  return {.kind = Assessment::Kind::kWait, .verdict = claimant.verdict, .figures = claimant.figures};
}

}  // namespace

void AdmissionCoordinator::Pump() {
  ReleaseOverCeiling();
  do {
    look_again_ = false;
    claims_.clear();
    claimants_.clear();
    passed_over_.clear();
    for (auto& [id, entry] : ledger_.entries()) entry.retiring = false;
    if (queue_.waiting() == 0) return;
    uint32_t position = 0;
    for (const TicketId id : queue_.Order(now_.monotonic, policy_.ageing_step)) {
      Consider(*queue_.Find(id), ++position);
    }
  } while (look_again_);
}

void AdmissionCoordinator::ReleaseOverCeiling() {
  const MemoryPlan plan(ledger_, ceiling_, live_, {});
  if (plan.FitsCeiling({}, nullptr)) return;
  const auto pinned = [this](std::string_view model) { return pinned_.contains(model); };
  const MemoryPlan::Ids leaving = plan.Leaving(true);
  const MemoryPlan::Ids idle = EvictionCandidates(ledger_, pinned);
  const auto picks =
      PickVictims(leaving, idle, [&](const MemoryPlan::Ids& gone) { return plan.FitsCeiling(gone, nullptr); });
  // Where even all of them would not do, busy or pinned ones hold the rest, and every idle one goes.
  for (const AllocationId id : picks.value_or(idle)) {
    Evict(*ledger_.Find(id), EvictionCause::kOverCeiling, 0);
  }
}

// Only ever on a fresh reading: each eviction would otherwise be answered with the next before it shows.
void AdmissionCoordinator::ReleaseUnderPressure() {
  const MemoryPlan plan(ledger_, ceiling_, live_, {});
  const MemoryPlan::Ids leaving = plan.Leaving(true);
  if (!live_.has_value() || plan.FitsLive(leaving, nullptr)) {
    short_since_.reset();
    return;
  }
  if (!short_since_.has_value()) short_since_ = now_.monotonic;
  if (now_.monotonic - *short_since_ < kPressureFor) return;
  const auto pinned = [this](std::string_view model) { return pinned_.contains(model); };
  const MemoryPlan::Ids idle = EvictionCandidates(ledger_, pinned);
  const Demand relief{.file = {}, .weights = 0, .private_bytes = PressureRelief(live_->total_bytes)};
  const auto picks =
      PickVictims(leaving, idle, [&](const MemoryPlan::Ids& gone) { return plan.FitsLive(gone, &relief); });
  for (const AllocationId id : picks.value_or(idle)) Evict(*ledger_.Find(id), EvictionCause::kPressure, 0);
}

void AdmissionCoordinator::Consider(TicketRecord& ticket, uint32_t position) {
  const ModelFacts& facts = *ticket.request.facts;
  if (const Block* block = BlockOf(facts.model)) {
    Refuse(ticket.id, block->why, ExplainBlocked(block->why, facts, block->retry_after, block->detail));
    return;
  }
  const Assessor assessor = MakeAssessor(claims_);
  Assessment assessment = assessor.Assess(ticket.request, ticket.bypassed >= kBarrierAfter);
  if (const TicketRecord* claimant = ClaimantFor(facts.model)) assessment = Behind(assessment, *claimant);
  switch (assessment.kind) {
    case Assessment::Kind::kLease:
      Lease(ticket, *ledger_.Find(assessment.lease));
      break;
    case Assessment::Kind::kLoad:
      Load(ticket, assessment);
      break;
    case Assessment::Kind::kWait:
      Wait(ticket, assessment, position);
      break;
    case Assessment::Kind::kRefuse:
      Refuse(ticket.id, assessment.verdict, Explain(assessment.verdict, facts, assessment.figures));
      break;
  }
}

void AdmissionCoordinator::Lease(TicketRecord& ticket, LedgerEntry& entry) {
  queue_.Bind(ticket, entry.id);
  entry.leases.push_back(ticket.id);
  if (!IsReady(entry.state)) {
    if (entry.loader != ticket.id) Emit(BoundAction{ticket.id, entry.id});
    return;
  }
  if (entry.state == AllocationState::kIdle) (void)ledger_.Move(entry, AllocationState::kBusy);
  queue_.Grant(ticket);
  Emit(GrantAction{ticket.id, entry.id});
}

void AdmissionCoordinator::Load(TicketRecord& ticket, const Assessment& assessment) {
  LedgerEntry& entry = ledger_.Reserve(ticket.request.facts, assessment.shape, assessment.charge, now_.boottime);
  entry.loader = ticket.id;
  Lease(ticket, entry);
  Emit(SpawnAction{entry.id, ticket.id, entry.shape, entry.estimate});
  for (const TicketId id : passed_over_) ++queue_.Find(id)->bypassed;
  // One ahead of it that wanted a larger worker of this model may be content with this one.
  look_again_ = look_again_ || queue_.WaitingFor(ticket.request.facts->model) > 0;
}

void AdmissionCoordinator::Wait(TicketRecord& ticket, const Assessment& assessment, uint32_t position) {
  if (ticket.id == fresh_ && !fresh_may_wait_) {
    const ModelFacts& facts = *ticket.request.facts;
    const uint32_t of_model = queue_.WaitingFor(facts.model) - 1;
    const bool model_is_full = of_model >= policy_.max_waiting_per_model;
    Refuse(ticket.id, Verdict::kQueueFull,
           ExplainQueueFull(facts, model_is_full ? of_model : queue_.waiting() - 1,
                            model_is_full ? policy_.max_waiting_per_model : policy_.max_waiting, model_is_full));
    return;
  }
  for (const AllocationId id : assessment.evict) {
    Evict(*ledger_.Find(id), EvictionCause::kMakeRoom, ticket.id);
  }
  if (LedgerEntry* outgrown = ledger_.Find(assessment.retire)) {
    outgrown->retiring = true;
    if (outgrown->state == AllocationState::kIdle) Evict(*outgrown, EvictionCause::kOutgrown, ticket.id);
  }
  ticket.for_sequence = assessment.for_sequence;
  ticket.figures = assessment.figures;
  if (assessment.claims && !Mutant(Fault::kIgnorePromise)) {
    claims_.push_back({.file = ticket.request.facts->file,
                       .weights = assessment.charge.weights,
                       .private_bytes = assessment.charge.Private()});
    claimants_.push_back(ticket.id);
  } else if (!assessment.for_sequence && assessment.verdict != Verdict::kPendingTeardown) {
    passed_over_.push_back(ticket.id);
  }
  if (assessment.wants_sample) WantSample();
  Announce(ticket, assessment.verdict, position);
}

void AdmissionCoordinator::Announce(TicketRecord& ticket, Verdict verdict, uint32_t position) {
  if (ticket.verdict == verdict) return;
  ticket.verdict = verdict;
  Emit(QueuedAction{ticket.id, verdict, position});
}

void AdmissionCoordinator::Refuse(TicketId id, Verdict verdict, Refusal refusal) {
  queue_.Remove(id);
  if (id == fresh_) {
    fresh_verdict_ = verdict;
    fresh_refusal_ = std::move(refusal);
    return;
  }
  Emit(RefuseAction{id, std::move(refusal)});
}

void AdmissionCoordinator::Evict(LedgerEntry& entry, EvictionCause cause, TicketId for_ticket) {
  if (!ledger_.Move(entry, AllocationState::kTeardown)) return;
  Emit(EvictAction{entry.id, cause, for_ticket});
  // Its own waiters, who waited for it to drain, now wait for memory.
  look_again_ = look_again_ || queue_.WaitingFor(entry.facts->model) > 0;
}

void AdmissionCoordinator::WantSample() {
  if (std::exchange(sample_wanted_, true)) return;
  Emit(SampleMemoryAction{});
}

Assessor AdmissionCoordinator::MakeAssessor(std::span<const Demand> claims) const {
  return Assessor({.ledger = ledger_,
                   .learned = learned_,
                   .ceiling = ceiling_,
                   .live = live_,
                   .live_stale = live_stale_,
                   .claims = claims,
                   .pinned = [this](std::string_view model) { return pinned_.contains(model); }});
}

const TicketRecord* AdmissionCoordinator::ClaimantFor(std::string_view model) const {
  for (const TicketId id : claimants_) {
    const TicketRecord* ticket = queue_.Find(id);
    if (ticket->request.facts->model == model) return ticket;
  }
  return nullptr;
}

const AdmissionCoordinator::Block* AdmissionCoordinator::BlockOf(std::string_view model) const {
  const auto found = blocked_.find(model);
  return found == blocked_.end() ? nullptr : &found->second;
}

PreflightReport AdmissionCoordinator::Preflight(const AdmitRequest& request) const {
  // Only what is promised to waiters that would be looked at before this request.
  std::vector<Demand> ahead;
  const TicketRecord* same_model = nullptr;
  const uint64_t own_rank = WaitQueue::Rank(request.priority, {}, policy_.ageing_step);
  for (size_t i = 0; i < claimants_.size(); ++i) {
    const TicketRecord& claimant = *queue_.Find(claimants_[i]);
    const Duration waited = now_.monotonic - claimant.arrived;
    if (WaitQueue::Rank(claimant.request.priority, waited, policy_.ageing_step) <= own_rank) {
      ahead.push_back(claims_[i]);
      if (claimant.request.facts->model == request.facts->model) same_model = &claimant;
    }
  }
  const Assessor assessor = MakeAssessor(ahead);
  Assessment assessment = assessor.Assess(request, false);
  if (same_model != nullptr) assessment = Behind(assessment, *same_model);
  PreflightReport report = Report(request, assessor, assessment);
  if (const Block* block = BlockOf(request.facts->model)) {
    report.verdict = block->why;
    report.refusal = ExplainBlocked(block->why, *request.facts, block->retry_after, block->detail);
    report.would_release.clear();
  }
  return report;
}

}  // namespace bulkhead::admission
