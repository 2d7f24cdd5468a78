// The lease of one request on one allocation, as the outside world holds it. Private to supervisor*.cc.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "supervisor/supervisor.h"

namespace bulkhead::supervisor {

// The lease of one request. Its end is told to the supervisor if that still exists.
class Supervisor::WorkerLease final : public LocalWorkerAdmission::Lease {
 public:
  WorkerLease(std::shared_ptr<Supervisor*> owner, std::shared_ptr<admission::AdmissionCoordinator> coordinator,
              admission::Ticket ticket, std::string inference, admission::AllocationId number, std::string allocation)
      : owner_(std::move(owner)),
        coordinator_(std::move(coordinator)),
        ticket_(std::move(ticket)),
        inference_(std::move(inference)),
        number_(number),
        allocation_(std::move(allocation)) {}
  ~WorkerLease() override {
    if (*owner_ != nullptr) (*owner_)->Coordinator();
    ticket_.Drop();
    if (*owner_ != nullptr) (*owner_)->LeaseDropped(inference_, number_);
  }
  WorkerLease(const WorkerLease&) = delete;
  WorkerLease& operator=(const WorkerLease&) = delete;
  [[nodiscard]] std::string allocation_id() const override { return allocation_; }
  [[nodiscard]] const std::string& inference() const { return inference_; }
  // The place in admission, to be queued again: the end of the lease no longer gives it back.
  admission::Ticket TakeTicket() { return std::move(ticket_); }

 private:
  std::shared_ptr<Supervisor*> owner_;
  std::shared_ptr<admission::AdmissionCoordinator> coordinator_;  // outlives the ticket
  admission::Ticket ticket_;
  std::string inference_;
  admission::AllocationId number_;
  std::string allocation_;
};

}  // namespace bulkhead::supervisor
