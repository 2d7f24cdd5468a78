#include "worker/outbox.h"

#include <google/protobuf/message_lite.h>
#include <sys/eventfd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/status.h"
#include "base/sys.h"
#include "ipc/frame.h"
#include "ipc/limits.h"

namespace bulkhead::worker {

Outbox::Outbox() : wake_fd_(sys::EventFd(0, EFD_NONBLOCK)) {
  if (wake_fd_.valid()) return;
  // Without it nothing the engine says would ever be sent: better a death that can be seen than a stall.
  std::fprintf(stderr, "bulkhead-worker: %s\n", Message(ErrnoError(-wake_fd_.get(), "eventfd")).c_str());
  std::abort();
}

void Outbox::Push(const google::protobuf::MessageLite& frame) {
  auto encoded = ipc::EncodeFrame(frame, ipc::kDefaultMaxFrame);
  if (!encoded.ok()) {
    std::fprintf(stderr, "bulkhead-worker: %s\n", Message(encoded.status()).c_str());
    std::abort();
  }
  pending_.fetch_add(encoded->size());
  {
    std::lock_guard lock(mutex_);
    frames_.push_back(*std::move(encoded));
  }
  Wake();
}

void Outbox::Wake() {
  const uint64_t one = 1;
  (void)sys::Write(wake_fd_.get(), &one, sizeof(one));
}

void Outbox::AcknowledgeWake() {
  uint64_t count = 0;
  (void)sys::Read(wake_fd_.get(), &count, sizeof(count));
}

std::vector<std::string> Outbox::Take() {
  std::lock_guard lock(mutex_);
  return std::exchange(frames_, {});
}

bool Outbox::congested() const { return pending_bytes() > ipc::kOutputHighWater; }
bool Outbox::drained() const { return pending_bytes() <= ipc::kOutputLowWater; }

}  // namespace bulkhead::worker
