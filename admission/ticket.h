// A place in admission, held by value: first in the queue, then a lease on an allocation. Move-only. Dropping it leaves
// the queue or ends the lease, never the charge of a live process; a reservation for which no process exists yet is
// given up with its last lease. The coordinator must outlive it.
#pragma once

#include <utility>

#include "admission/ledger.h"

namespace bulkhead::admission {

class AdmissionCoordinator;

class Ticket {
 public:
  Ticket() = default;
  Ticket(AdmissionCoordinator* coordinator, TicketId id) : coordinator_(coordinator), id_(id) {}
  Ticket(Ticket&& other) noexcept
      : coordinator_(std::exchange(other.coordinator_, nullptr)), id_(std::exchange(other.id_, 0)) {}
  Ticket& operator=(Ticket&& other) noexcept {
    if (this != &other) {
      Drop();
      coordinator_ = std::exchange(other.coordinator_, nullptr);
      id_ = std::exchange(other.id_, 0);
    }
    return *this;
  }
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;
  ~Ticket() { Drop(); }

  [[nodiscard]] TicketId id() const { return id_; }
  [[nodiscard]] explicit operator bool() const { return id_ != 0; }
  void Drop();

 private:
  AdmissionCoordinator* coordinator_ = nullptr;
  TicketId id_ = 0;
};

}  // namespace bulkhead::admission
