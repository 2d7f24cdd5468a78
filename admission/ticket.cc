#include "admission/ticket.h"

#include "admission/coordinator.h"

namespace bulkhead::admission {

void Ticket::Drop() {
  if (coordinator_ != nullptr && id_ != 0) coordinator_->DropTicket(id_);
  coordinator_ = nullptr;
  id_ = 0;
}

}  // namespace bulkhead::admission
