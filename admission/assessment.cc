#include "admission/assessment.h"

#include <algorithm>

namespace bulkhead::admission {
namespace {

using Kind = Assessment::Kind;

Demand DemandOf(const ModelFacts& facts, const Charge& charge) {
  return {.file = facts.file, .weights = charge.weights, .private_bytes = charge.Private()};
}

Assessment Refused(Verdict verdict, Figures figures = {}) {
  return {.kind = Kind::kRefuse, .verdict = verdict, .figures = figures};
}

void Append(MemoryPlan::Ids& ids, const MemoryPlan::Ids& more) { ids.insert(ids.end(), more.begin(), more.end()); }

}  // namespace

const LedgerEntry* CurrentOf(const Ledger& ledger, std::string_view model) {
  for (const auto& [id, entry] : ledger.entries()) {
    if (!IsLeaving(entry.state) && entry.facts->model == model) return &entry;
  }
  return nullptr;
}

Assessment Assessor::Assess(const AdmitRequest& request, bool barrier) const {
  if (around_.ceiling == 0) return Refused(Verdict::kDisabledByPolicy);
  const LedgerEntry* current = CurrentOf(around_.ledger, request.facts->model);
  const uint32_t trained = request.facts->trained_context;
  if (trained != 0 && request.context > trained) return TooLarge(request, current);
  if (current == nullptr) return OnNewWorker(request, nullptr, barrier);
  if (Serves(*current, request)) return OnResident(*current);
  // A pinned worker stays as it was asked for.
  if (around_.pinned(request.facts->model)) return TooLarge(request, current);
  return OnNewWorker(request, current, barrier);
}

bool Assessor::Serves(const LedgerEntry& entry, const AdmitRequest& request) const {
  if (request.context > entry.shape.context) return false;
  // A pinned worker keeps its pool, and the file it was pinned with.
  if (around_.pinned(request.facts->model)) return true;
  if (request.exact_shape && request.sequences > entry.shape.sequences) return false;
  return entry.facts->file == request.facts->file;
}

Assessment Assessor::OnResident(const LedgerEntry& current) const {
  if (current.routing_stopped || current.retiring) {
    return {.kind = Kind::kWait, .verdict = Verdict::kPendingTeardown};
  }
  const Figures figures{1, current.shape.sequences - current.leases.size(), current.shape.sequences};
  if (current.leases.size() < current.shape.sequences) {
    return {.kind = Kind::kLease, .lease = current.id, .shape = current.shape, .figures = figures};
  }
  return {.kind = Kind::kWait, .verdict = Verdict::kWaitingForMemory, .for_sequence = true, .figures = figures};
}

std::vector<Assessor::Candidate> Assessor::Candidates(const AdmitRequest& request) const {
  const ModelFacts& facts = *request.facts;
  const uint32_t usual = DefaultContext(facts);
  std::vector<uint32_t> contexts = {request.context == 0 ? usual : request.context};
  if (!request.exact_shape && request.context != 0 && request.context < usual) contexts.insert(contexts.begin(), usual);
  std::vector<Candidate> candidates;
  for (const uint32_t context : contexts) {
    const uint32_t most = request.sequences == 0 ? DefaultSequences(facts) : request.sequences;
    const uint32_t least = request.sequences == 0 ? 1 : request.sequences;
    for (uint32_t sequences = most; sequences >= least && sequences > 0; --sequences) {
      const Shape shape{context, sequences};
      const auto charge = EstimateCharge(facts, shape, around_.learned.Peak(facts.file, shape));
      if (charge.has_value()) candidates.push_back({shape, *charge});
    }
  }
  return candidates;
}

Assessment Assessor::TooLarge(const AdmitRequest& request, const LedgerEntry* current) const {
  const uint32_t most = LargestContext(*request.facts, around_.ceiling);
  return Refused(Verdict::kContextTooLarge,
                 {request.context, current == nullptr ? 0 : uint64_t{current->shape.context}, most});
}

bool Assessor::HasPredecessor(const std::string& model) const {
  // A STUCK one may never go: the model is not to be lost with it.
  return std::any_of(around_.ledger.entries().begin(), around_.ledger.entries().end(), [&](const auto& item) {
    const LedgerEntry& entry = item.second;
    return IsLeaving(entry.state) && entry.state != AllocationState::kStuck && entry.facts->model == model;
  });
}

Assessment Assessor::OnNewWorker(const AdmitRequest& request, const LedgerEntry* outgrown, bool barrier) const {
  const std::vector<Candidate> candidates = Candidates(request);
  const bool fits_alone = !candidates.empty() && candidates.back().charge.Total() <= around_.ceiling;
  if (!fits_alone) {
    const uint32_t most = LargestContext(*request.facts, around_.ceiling);
    if (most != 0 && request.context > std::max(most, DefaultContext(*request.facts))) {
      return TooLarge(request, outgrown);
    }
    const uint64_t asked = candidates.empty() ? UINT64_MAX : candidates.back().charge.Total();
    return Refused(Verdict::kExceedsCeiling, {asked, most, around_.ceiling});
  }
  if (!around_.live.has_value()) return Refused(Verdict::kLiveMemoryUnknown);
  if (outgrown == nullptr && !HasPredecessor(request.facts->model)) {
    for (const Candidate& candidate : candidates) {
      const Demand demand = DemandOf(*request.facts, candidate.charge);
      if (!plan_.Fits({}, &demand)) continue;
      return {.kind = Kind::kLoad, .shape = candidate.shape, .charge = candidate.charge};
    }
  }
  return Short(request, candidates.back(), outgrown, barrier);
}

Assessment Assessor::Short(const AdmitRequest& request, const Candidate& smallest, const LedgerEntry* outgrown,
                           bool barrier) const {
  const Demand demand = DemandOf(*request.facts, smallest.charge);
  Assessment answer{.kind = Kind::kWait, .shape = smallest.shape, .charge = smallest.charge};
  const uint64_t taken = plan_.Total({}, nullptr);
  answer.figures = {smallest.charge.Total(), around_.ceiling > taken ? around_.ceiling - taken : 0, around_.ceiling};

  MemoryPlan::Ids gone = plan_.Leaving(false);
  if (outgrown != nullptr) gone.push_back(outgrown->id);
  MemoryPlan::Ids idle;
  if (request.may_evict) idle = EvictionCandidates(around_.ledger, around_.pinned);
  if (outgrown != nullptr) std::erase(idle, outgrown->id);

  if (around_.live_stale && plan_.FitsCeiling(gone, &demand) && !plan_.FitsLive(gone, &demand)) {
    // Perhaps what came back is enough: no worker is released before that is known.
    answer.verdict = Verdict::kInsufficientLiveMemory;
    answer.claims = true;
    answer.wants_sample = true;
    return answer;
  }
  const auto picks = PickVictims(gone, idle, [&](const MemoryPlan::Ids& all) { return plan_.Fits(all, &demand); });
  if (picks.has_value()) {
    answer.verdict = Verdict::kPendingTeardown;
    answer.claims = true;
    answer.evict = *picks;
    answer.retire = outgrown == nullptr ? 0 : outgrown->id;
    return answer;
  }
  Append(gone, idle);
  MemoryPlan::Ids with_stuck = plan_.Leaving(true);
  Append(with_stuck, idle);
  if (plan_.FitsCeiling(gone, &demand)) {
    answer.verdict = Verdict::kInsufficientLiveMemory;
    answer.figures = {smallest.charge.Total(), plan_.LiveHeadroomNow(), around_.live->available_bytes};
  } else if (plan_.FitsCeiling(with_stuck, &demand)) {
    answer.verdict = Verdict::kPendingTeardown;
  } else {
    answer.verdict = Verdict::kWaitingForMemory;
    MemoryPlan::Ids unpinned;
    for (const auto& [id, entry] : around_.ledger.entries()) {
      if (!around_.pinned(entry.facts->model)) unpinned.push_back(id);
    }
    answer.claims = barrier && plan_.FitsCeiling(unpinned, &demand);
  }
  return answer;
}

}  // namespace bulkhead::admission
