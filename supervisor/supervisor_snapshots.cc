// Answers from memory.
#include <algorithm>
#include <set>

#include "supervisor/milliseconds.h"
#include "supervisor/supervisor.h"

namespace bulkhead::supervisor {
std::vector<ResidentModel> Supervisor::Residents() const {
  std::vector<ResidentModel> models;
  const Duration now = loop_.now();
  const Duration boottime = loop_.clock().Boottime();
  for (const auto& [number, held] : allocations_) {
    const Allocation& process = *held.process;
    const admission::LedgerEntry* entry = coordinator_->ledger().Find(number);
    if (entry == nullptr) continue;
    ResidentModel model;
    model.model = process.plan().model;
    model.allocation_id = process.plan().id;
    model.state = admission::NameOf(process.state());
    model.pid = process.pid();
    model.charge_bytes = entry->PrivateCharge() + entry->estimate.weights;
    model.estimate_bytes = entry->estimate.Total();
    model.measured_bytes = entry->measured_private;
    model.shared_bytes = entry->estimate.weights;
    model.private_bytes = process.private_bytes();
    model.file_bytes = process.file_bytes();
    model.share_bytes = held.maps.value_or(MapReading{}).share_of_files;
    model.file = entry->facts->file;
    model.in_flight = static_cast<uint32_t>(OnAllocation(number).size());
    model.waiting = coordinator_->WaitingFor(process.plan().model);
    model.pinned = coordinator_->pinned(process.plan().model);
    model.context = process.context();
    model.sequences = process.sequences();
    model.threads = process.threads();
    model.resident_ms = Milliseconds(boottime - entry->since);
    if (process.state() == AllocationState::kIdle) model.idle_ms = Milliseconds(boottime - entry->last_used);
    Duration deadline = process.teardown_deadline();
    if (deadline == Duration(0) && held.drain_timer != nullptr) deadline = held.drain_timer->at();
    if (deadline > now) model.deadline_in_ms = static_cast<uint64_t>(Milliseconds(deadline - now));
    model.passed = process.plan().passed;
    model.uid = process.plan().uid;
    model.engine = process.engine();
    if (process.heartbeat_at()) model.heartbeat_ms = Milliseconds(now - *process.heartbeat_at());
    models.push_back(std::move(model));
  }
  return models;
}

std::optional<std::string> Supervisor::ResidentAllocationId(std::string_view model) const {
  const auto found = allocations_.find(coordinator_->Resident(model));
  if (found == allocations_.end()) return std::nullopt;
  return found->second.process->plan().id;
}

std::vector<RequestInfo> Supervisor::Requests() const {
  std::vector<RequestInfo> requests;
  for (const auto& [id, inference] : inferences_) requests.push_back(*FindRequest(id));
  return requests;
}

std::optional<RequestInfo> Supervisor::FindRequest(std::string_view id) const {
  const Inference* inference = Find(id);
  if (inference == nullptr) return std::nullopt;
  RequestInfo info;
  info.inference_id = inference->id;
  info.model = inference->request.model.name;
  if (const auto held = allocations_.find(inference->allocation); held != allocations_.end()) {
    info.allocation_id = held->second.process->plan().id;
  }
  info.state = NameOf(inference->state);
  info.uid = inference->request.uid;
  info.age_ms = Milliseconds(loop_.now() - inference->accepted_at);
  info.prompt_tokens = static_cast<uint32_t>(inference->prompt_ids.size());
  info.produced = static_cast<uint32_t>(inference->ids.size());
  info.priority = inference->request.priority;
  return info;
}

std::vector<uid_t> Supervisor::OthersInProcessOf(std::string_view id) const {
  const Inference* target = Find(id);
  if (target == nullptr || !target->in_worker) return {};
  std::set<uid_t> uids;
  for (const Inference* inference : OnAllocation(target->allocation)) {
    const bool resumes =
        inference->kind == RequestKind::kGenerate && inference->request.on_worker_death == v1::ON_WORKER_DEATH_RESUME;
    if (inference->request.uid != target->request.uid && !resumes) uids.insert(inference->request.uid);
  }
  return {uids.begin(), uids.end()};
}

BudgetSnapshot Supervisor::Budget() const {
  const admission::Budget budget = coordinator_->budget();
  BudgetSnapshot snapshot;
  snapshot.profile = std::string(budget.profile);
  snapshot.ceiling_bytes = budget.ceiling_bytes;
  snapshot.charged_bytes = budget.charged_bytes;
  snapshot.promised_bytes = budget.promised_bytes;
  snapshot.live_headroom_bytes = budget.live_headroom_bytes.value_or(0);
  snapshot.policy_generation = budget.generation;
  snapshot.waiting = budget.waiting;
  snapshot.oldest_waiting_ms = static_cast<uint64_t>(Milliseconds(budget.oldest_waiting));
  return snapshot;
}

std::string Supervisor::Degraded() const {
  std::string degraded;
  const auto add = [&](const std::string& what) {
    if (what.empty()) return;
    if (!degraded.empty()) degraded += "; ";
    degraded += what;
  };
#ifdef BULKHEAD_SANITIZER
  add("built with sanitizers: workers have no memory fence");
#endif
  if (!options_.memory->Machine().available.has_value()) add("live memory cannot be read: no worker can be started");
  add(options_.launcher->Degraded());
  add(cpu_problem_);
  if (options_.state_directory.empty()) add("no state directory: death records do not outlive the daemon");
  return degraded;
}

}  // namespace bulkhead::supervisor
