#include "admission/wait_queue.h"

#include <algorithm>

namespace bulkhead::admission {

TicketRecord& WaitQueue::Add(const AdmitRequest& request, Duration now) {
  const TicketId id = next_id_++;
  TicketRecord& ticket = tickets_[id];
  ticket.id = id;
  ticket.request = request;
  ticket.arrived = now;
  Enqueue(ticket);
  return ticket;
}

TicketRecord* WaitQueue::Find(TicketId id) {
  const auto found = tickets_.find(id);
  return found == tickets_.end() ? nullptr : &found->second;
}

const TicketRecord* WaitQueue::Find(TicketId id) const {
  const auto found = tickets_.find(id);
  return found == tickets_.end() ? nullptr : &found->second;
}

void WaitQueue::Enqueue(const TicketRecord& ticket) {
  waiting_[static_cast<size_t>(ticket.request.priority)].insert(ticket.id);
  ++per_model_[ticket.request.facts->model];
  deadlines_.emplace(ticket.request.deadline, ticket.id);
}

void WaitQueue::Dequeue(const TicketRecord& ticket) {
  waiting_[static_cast<size_t>(ticket.request.priority)].erase(ticket.id);
  const auto count = per_model_.find(ticket.request.facts->model);
  if (--count->second == 0) per_model_.erase(count);
}

void WaitQueue::Bind(TicketRecord& ticket, AllocationId allocation) {
  Dequeue(ticket);
  ticket.state = TicketState::kBound;
  ticket.verdict = Verdict::kAllowed;
  ticket.allocation = allocation;
}

void WaitQueue::Grant(TicketRecord& ticket) {
  ticket.state = TicketState::kGranted;
  deadlines_.erase({ticket.request.deadline, ticket.id});
}

void WaitQueue::Requeue(TicketRecord& ticket, Duration deadline) {
  deadlines_.erase({ticket.request.deadline, ticket.id});
  ticket.request.deadline = deadline;
  ticket.state = TicketState::kWaiting;
  ticket.allocation = 0;
  ticket.verdict = Verdict::kAllowed;
  Enqueue(ticket);
}

void WaitQueue::Remove(TicketId id) {
  const auto found = tickets_.find(id);
  if (found == tickets_.end()) return;
  if (found->second.state == TicketState::kWaiting) Dequeue(found->second);
  deadlines_.erase({found->second.request.deadline, id});
  tickets_.erase(found);
}

uint64_t WaitQueue::Rank(Priority priority, Duration waited, Duration ageing_step) {
  const auto level = static_cast<uint64_t>(priority);
  if (ageing_step <= Duration::zero() || waited <= Duration::zero()) return level;
  const auto steps = static_cast<uint64_t>(waited / ageing_step);
  return steps >= level ? 0 : level - steps;
}

std::vector<TicketId> WaitQueue::Order(Duration now, Duration ageing_step) const {
  std::vector<std::pair<uint64_t, TicketId>> ranked;
  for (const auto& level : waiting_) {
    for (const TicketId id : level) {
      const TicketRecord& ticket = tickets_.at(id);
      ranked.emplace_back(Rank(ticket.request.priority, now - ticket.arrived, ageing_step), id);
    }
  }
  std::sort(ranked.begin(), ranked.end());
  std::vector<TicketId> order;
  order.reserve(ranked.size());
  for (const auto& [rank, id] : ranked) order.push_back(id);
  return order;
}

uint32_t WaitQueue::waiting() const {
  size_t count = 0;
  for (const auto& level : waiting_) count += level.size();
  return static_cast<uint32_t>(count);
}

uint32_t WaitQueue::WaitingFor(std::string_view model) const {
  const auto found = per_model_.find(model);
  return found == per_model_.end() ? 0 : found->second;
}

std::optional<Duration> WaitQueue::OldestArrival() const {
  std::optional<Duration> oldest;
  for (const auto& level : waiting_) {
    if (level.empty()) continue;
    const Duration arrived = tickets_.at(*level.begin()).arrived;
    oldest = oldest.has_value() ? std::min(*oldest, arrived) : arrived;
  }
  return oldest;
}

std::vector<TicketId> WaitQueue::Expired(Duration now) const {
  std::vector<TicketId> expired;
  for (const auto& [deadline, id] : deadlines_) {
    if (deadline > now) break;
    expired.push_back(id);
  }
  return expired;
}

std::optional<Duration> WaitQueue::NextDeadline() const {
  if (deadlines_.empty() || deadlines_.begin()->first == Duration::max()) return std::nullopt;
  return deadlines_.begin()->first;
}

}  // namespace bulkhead::admission
