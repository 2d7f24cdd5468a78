#include "tests/sim/mirror.h"

#include <algorithm>

namespace bulkhead::sim {
namespace {

bool IsLeavingState(AllocationState state) {
  return state == AllocationState::kTeardown || state == AllocationState::kStuck || state == AllocationState::kReaped ||
         state == AllocationState::kSettled;
}

}  // namespace

uint64_t Mirror::ceiling() const {
  uint64_t machine = policy.ram_bytes;
  if (policy.cgroup_limit_bytes.has_value()) machine = std::min(machine, *policy.cgroup_limit_bytes);
  switch (policy.profile) {
    case admission::Profile::kEveryday:
      return machine / 100 * 40;
    case admission::Profile::kLocalFocused:
      return machine / 100 * 80;
    case admission::Profile::kCustom:
      return std::min(machine, policy.custom_bytes);
  }
  return 0;
}

bool Mirror::PinnedModel(const std::string& model) const {
  return std::any_of(models.begin(), models.end(),
                     [&](const SimModel& m) { return m.pinned && m.facts->model == model; });
}

Verdict Mirror::BlockOf(const std::string& model) const {
  for (const SimModel& m : models) {
    if (m.facts->model == model) return m.block;
  }
  return Verdict::kAllowed;
}

const SimAllocation* Mirror::Current(const std::string& model) const {
  for (const auto& [id, allocation] : allocations) {
    if (!IsLeavingState(allocation.state) && allocation.facts->model == model) return &allocation;
  }
  return nullptr;
}

bool Mirror::HasPredecessor(const std::string& model) const {
  return std::any_of(allocations.begin(), allocations.end(), [&](const auto& item) {
    const SimAllocation& allocation = item.second;
    return IsLeavingState(allocation.state) && allocation.state != AllocationState::kStuck &&
           allocation.facts->model == model;
  });
}

bool Mirror::Serves(const SimAllocation& allocation, const AdmitRequest& request) const {
  if (request.context > allocation.shape.context) return false;
  if (PinnedModel(allocation.facts->model)) return true;
  if (request.exact_shape && request.sequences > allocation.shape.sequences) return false;
  return allocation.facts->file == request.facts->file;
}

uint32_t Mirror::Waiting() const {
  return static_cast<uint32_t>(std::count_if(tickets.begin(), tickets.end(),
                                             [](const auto& item) { return item.second.place == Place::kWaiting; }));
}

uint32_t Mirror::WaitingFor(const std::string& model) const {
  return static_cast<uint32_t>(std::count_if(tickets.begin(), tickets.end(), [&](const auto& item) {
    return item.second.place == Place::kWaiting && item.second.request.facts->model == model;
  }));
}

std::vector<TicketId> Mirror::Order() const {
  std::vector<std::pair<int64_t, TicketId>> ranked;
  for (const auto& [id, ticket] : tickets) {
    if (ticket.place != Place::kWaiting) continue;
    int64_t rank = static_cast<int64_t>(ticket.request.priority);
    if (policy.ageing_step > Duration::zero()) rank -= (now.monotonic - ticket.arrived) / policy.ageing_step;
    ranked.emplace_back(std::max<int64_t>(rank, 0), id);
  }
  std::sort(ranked.begin(), ranked.end());
  std::vector<TicketId> order;
  for (const auto& [rank, id] : ranked) order.push_back(id);
  return order;
}

Mirror::Gone Mirror::Leaving(bool with_stuck) const {
  Gone gone;
  for (const auto& [id, allocation] : allocations) {
    if (IsLeavingState(allocation.state) && (with_stuck || allocation.state != AllocationState::kStuck))
      gone.insert(id);
  }
  return gone;
}

Mirror::Gone Mirror::IdleUnpinned() const {
  Gone idle;
  for (const auto& [id, allocation] : allocations) {
    if (allocation.state == AllocationState::kIdle && !PinnedModel(allocation.facts->model)) idle.insert(id);
  }
  return idle;
}

uint64_t Mirror::Weights(const Gone& gone, const std::vector<Want>& wants) const {
  std::map<admission::FileIdentity, uint64_t> files;
  for (const auto& [id, allocation] : allocations) {
    if (!gone.contains(id)) files.emplace(allocation.facts->file, allocation.facts->weight_bytes);
  }
  for (const Want& want : wants) files.emplace(want.file, want.weights);
  uint64_t sum = 0;
  for (const auto& [file, bytes] : files) sum += bytes;
  return sum;
}

uint64_t Mirror::Charged(const Gone& gone, const std::vector<Want>& wants) const {
  uint64_t sum = Weights(gone, wants);
  for (const auto& [id, allocation] : allocations) {
    if (!gone.contains(id)) sum += allocation.Charge();
  }
  for (const Want& want : wants) sum += want.private_bytes;
  return sum;
}

bool Mirror::FitsLive(const Gone& gone, const std::vector<Want>& wants) const {
  if (!live.has_value()) return false;
  uint64_t available = live->available_bytes;
  uint64_t taken = std::max(live->total_bytes / 100 * 10, uint64_t{2} << 30) + Weights(gone, wants);
  for (const auto& [id, allocation] : allocations) {
    if (gone.contains(id)) {
      available += allocation.resident;
    } else if (allocation.state < AllocationState::kReaped && allocation.Charge() > allocation.resident) {
      taken += allocation.Charge() - allocation.resident;
    }
  }
  for (const Want& want : wants) taken += want.private_bytes;
  return taken <= available;
}

std::optional<Want> Mirror::Smallest(const AdmitRequest& request, const admission::LearnedPeaks& learned) {
  const admission::ModelFacts& facts = *request.facts;
  const uint32_t trained = facts.trained_context == 0 ? 8192 : facts.trained_context;
  const uint32_t context = request.context == 0 ? std::min<uint32_t>(trained, 8192) : request.context;
  const uint32_t sequences = request.sequences == 0 ? 1 : request.sequences;
  const unsigned __int128 positions = (static_cast<unsigned __int128>(context) + 255) / 256 * 256 * sequences;
  unsigned __int128 own = positions * facts.kv_bytes_per_token;
  own += static_cast<unsigned __int128>(sequences) * facts.recurrent_bytes_per_sequence;
  own += facts.arena_bytes;
  own += facts.overhead_bytes;
  own = std::max<unsigned __int128>(own, learned.Peak(facts.file, {context, sequences}));
  if (own + facts.weight_bytes > UINT64_MAX) return std::nullopt;
  return Want{facts.file, facts.weight_bytes, static_cast<uint64_t>(own)};
}

}  // namespace bulkhead::sim
