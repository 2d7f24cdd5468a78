#include "worker/heartbeat.h"

#include <chrono>
#include <string>

#include "bulkhead/v1/worker.pb.h"
#include "engine/runtime/continuous_batch_engine.h"
#include "worker/outbox.h"
#include "worker/translate.h"

namespace bulkhead::worker {
namespace {

constexpr Duration kBusyInterval = std::chrono::milliseconds(500);
constexpr Duration kIdleInterval = std::chrono::seconds(10);

}  // namespace

Duration Heartbeats::Load(Duration now, uint64_t progress, Outbox* outbox) {
  if (now < last_ + kBusyInterval) return last_ + kBusyInterval;
  last_ = now;
  // A daemon that does not read gets no more of the same.
  if (outbox->congested()) return last_ + kBusyInterval;
  v1::WorkerFrame frame;
  frame.mutable_heartbeat()->set_progress(progress);
  frame.mutable_heartbeat()->set_phase("load");
  outbox->Push(frame);
  return last_ + kBusyInterval;
}

Duration Heartbeats::Serve(Duration now, uint64_t progress_of_load, const engine::ContinuousBatchEngine& engine,
                           bool busy, Outbox* outbox) {
  // One more when the last request has ended, so that the daemon's picture is not an old one for ten seconds.
  const bool changed = busy != was_busy_;
  was_busy_ = busy;
  const Duration interval = busy ? kBusyInterval : kIdleInterval;
  if (!changed && now < last_ + interval) return last_ + interval;
  last_ = now;
  if (outbox->congested()) return last_ + interval;
  v1::WorkerFrame frame;
  v1::Heartbeat& heartbeat = *frame.mutable_heartbeat();
  heartbeat.set_progress(progress_of_load + engine.progress());
  heartbeat.set_phase(std::string(engine::NameOf(engine.phase())));
  Fill(engine.Snapshot(), heartbeat.mutable_engine());
  outbox->Push(frame);
  return last_ + interval;
}

}  // namespace bulkhead::worker
