// What the supervisor knows of one request from its acceptance to its terminal. Passive: Supervisor moves it by the
// lifecycle table. Everything a replay needs is here: prompt ids, parameters with the seed, ids so far.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "admission/ticket.h"
#include "supervisor/lifecycle.h"
#include "supervisor/loop.h"
#include "supervisor/offload.h"
#include "supervisor/replay_state.h"

namespace bulkhead::supervisor {

// A load and a tokenisation need a worker as a generation does, and wait, count and end like one.
enum class RequestKind : uint8_t { kGenerate, kLoad, kTokenize };

// Why a request is being ended gently; decides its terminal.
enum class EndCause : uint8_t { kOwner, kOther, kClientStalled, kDeadline, kReleased, kShutdown, kTerminated };

struct Inference {
  explicit Inference(Loop& loop) : deadline_timer(loop), queue_timer(loop), stall_timer(loop), escalation_timer(loop) {}

  std::string id;
  RequestKind kind = RequestKind::kGenerate;
  RequestState state = RequestState::kQueued;
  OffloadRequest request;            // its input is given away with the hand-over and comes back with the ticket
  std::shared_ptr<StreamSink> sink;  // null while the caller of AcquireAdmission has it
  LocalGenerationOffload::Admitted admitted;

  // Of a load.
  uint32_t sequences = 0;  // 0 = the default
  bool pin = false;
  bool was_resident = false;
  std::function<void(const LoadResult&)> loaded;
  // Of a tokenisation; its text is request.input.
  bool add_special = false;
  bool parse_special = false;
  std::function<void(std::vector<int32_t>)> tokenized;

  // Admission. While it waits the ticket is here; granted, it is inside a lease, which for a generation in a worker is
  // here again.
  std::shared_ptr<const admission::ModelFacts> facts;
  admission::TicketId ticket_id = 0;
  admission::Ticket ticket;
  LocalWorkerAdmission lease;
  admission::AllocationId allocation = 0;  // from the grant on
  Duration queue_until{};

  // Of the run.
  uint64_t handle = 0;
  bool in_worker = false;
  bool started = false;      // by its first worker
  bool run_started = false;  // by the one it is in
  bool handed_out = false;   // ticket and sink were with the caller once
  bool worker_lost = false;  // while they are with the caller
  bool held_back = false;    // admitted, and waits for another's quarantine to end
  ReplayState replay;
  uint32_t context = 0;
  std::vector<int32_t> prompt_ids;
  std::vector<int32_t> ids;
  bool pause_wanted = false;

  Duration accepted_at{};
  Duration handed_at{};
  Duration first_token_at{};

  std::optional<EndCause> ending;
  // Of a request that ended while its caller held the ticket: what to say when it comes back.
  std::optional<OffloadError> lost;

  Timer deadline_timer;
  Timer queue_timer;  // while the header is being read, before the coordinator watches the deadline
  Timer stall_timer;
  Timer escalation_timer;
};

}  // namespace bulkhead::supervisor
