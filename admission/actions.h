// What the coordinator asks of the supervisor. Actions are facts already entered in the ledger, in the order in which
// they must be carried out; carrying one out may call the coordinator again.
#pragma once

#include <cstdint>
#include <variant>

#include "admission/estimate.h"
#include "admission/ledger.h"
#include "admission/verdict.h"

namespace bulkhead::admission {

// Memory is reserved for a new worker and `ticket` holds its first lease: start the process. Answer with SpawnStarted
// or SpawnFailed in the same loop turn.
struct SpawnAction {
  AllocationId allocation = 0;
  TicketId ticket = 0;
  Shape shape;
  Charge estimate;
};

// `ticket` waits no longer for memory: it holds a lease on a worker that somebody else's request is loading. A
// GrantAction follows when that is ready.
struct BoundAction {
  TicketId ticket = 0;
  AllocationId allocation = 0;
};

// The worker is ready and `ticket` holds a lease on it: send the request. The ticket that loaded a worker comes first.
struct GrantAction {
  TicketId ticket = 0;
  AllocationId allocation = 0;
};

// `ticket` waits; sent when it starts to wait and whenever the verdict changes.
struct QueuedAction {
  TicketId ticket = 0;
  Verdict verdict = Verdict::kWaitingForMemory;
  uint32_t position = 0;  // 1 = next
};

// `ticket` is over: a waiter whose deadline passed, or which cannot be admitted any more. (A request refused at once is
// answered by Request itself.)
struct RefuseAction {
  TicketId ticket = 0;
  Refusal refusal;
};

enum class EvictionCause : uint8_t { kMakeRoom, kIdleTooLong, kOverCeiling, kOutgrown, kPressure };
std::string_view NameOf(EvictionCause cause);  // make-room, idle, over-ceiling, outgrown, pressure

// Kill this idle worker and wait for it. Its state is TEARDOWN already, so no request can slip in.
struct EvictAction {
  AllocationId allocation = 0;
  EvictionCause cause = EvictionCause::kMakeRoom;
  TicketId for_ticket = 0;  // kMakeRoom, kOutgrown: who waits for it
};

// The charge of `allocation` is retired, after reap and settlement: the answer that AwaitRetired promised. Once per
// token.
struct ConfirmAction {
  uint64_t token = 0;
  AllocationId allocation = 0;
};

// The kill could not be confirmed so far; a ConfirmAction may still follow. Once per token.
struct UnconfirmedAction {
  uint64_t token = 0;
  AllocationId allocation = 0;
};

// Memory came back, or a waiter lacks live memory: read /proc/meminfo and call SetLiveMemory.
struct SampleMemoryAction {};

using Action = std::variant<SpawnAction, BoundAction, GrantAction, QueuedAction, RefuseAction, EvictAction,
                            ConfirmAction, UnconfirmedAction, SampleMemoryAction>;

}  // namespace bulkhead::admission
