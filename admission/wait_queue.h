// Every ticket there is, and the order in which the waiting ones are looked at: priority raised by ageing, then
// arrival. Owned by the coordinator; single-threaded.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "admission/assessment.h"
#include "admission/request.h"

namespace bulkhead::admission {

enum class TicketState : uint8_t {
  kWaiting,
  kBound,    // holds a lease on a worker that is not ready
  kGranted,  // holds a lease and was told so
};

struct TicketRecord {
  TicketId id = 0;
  AdmitRequest request;
  TicketState state = TicketState::kWaiting;
  AllocationId allocation = 0;
  Duration arrived{};                   // monotonic
  Verdict verdict = Verdict::kAllowed;  // the one announced last; kAllowed = none so far
  bool for_sequence = false;            // waits for a free sequence of a resident worker, not for memory
  Figures figures;                      // of the last assessment
  uint32_t bypassed = 0;                // times a later waiter was given memory first
};

class WaitQueue {
 public:
  // Adds a waiting ticket.
  TicketRecord& Add(const AdmitRequest& request, Duration now);
  [[nodiscard]] TicketRecord* Find(TicketId id);
  [[nodiscard]] const TicketRecord* Find(TicketId id) const;
  void Bind(TicketRecord& ticket, AllocationId allocation);
  // From now on the deadline no longer matters.
  void Grant(TicketRecord& ticket);
  // Back to waiting, with the age it has.
  void Requeue(TicketRecord& ticket, Duration deadline);
  void Remove(TicketId id);

  // Waiting tickets in the order in which they are to be looked at.
  [[nodiscard]] std::vector<TicketId> Order(Duration now, Duration ageing_step) const;
  // 0 = most urgent; a smaller rank goes first, equal ranks by arrival.
  [[nodiscard]] static uint64_t Rank(Priority priority, Duration waited, Duration ageing_step);

  [[nodiscard]] uint32_t waiting() const;
  [[nodiscard]] uint32_t WaitingFor(std::string_view model) const;
  [[nodiscard]] std::optional<Duration> OldestArrival() const;
  // Waiting and bound tickets whose deadline is at or before `now`, earliest first.
  [[nodiscard]] std::vector<TicketId> Expired(Duration now) const;
  [[nodiscard]] std::optional<Duration> NextDeadline() const;

 private:
  void Enqueue(const TicketRecord& ticket);
  void Dequeue(const TicketRecord& ticket);

  std::unordered_map<TicketId, TicketRecord> tickets_;
  // By id, which is arrival order.
  std::array<std::set<TicketId>, kPriorityCount> waiting_;
  std::map<std::string, uint32_t, std::less<>> per_model_;
  std::set<std::pair<Duration, TicketId>> deadlines_;
  TicketId next_id_ = 1;
};

}  // namespace bulkhead::admission
