// The two life cycles as tables: state x event -> next state and action. The same table drives the code, names states
// and events in logs, `ps` and `events`, and is walked pair by pair by a test. Pure.
//
// Allocation states are the ledger's (admission/ledger.h); its strings are theirs. Of a pair that is not in the table
// an allocation or request ignores what may arrive late (a Ready after the stop) and rejects what cannot happen.
#pragma once

#include <cstdint>
#include <string_view>

#include "admission/ledger.h"

namespace bulkhead::supervisor {

using admission::AllocationState;

enum class AllocationEvent : uint8_t {
  kSpawned,      // the process exists
  kSpawnFailed,  // it never did
  kGivenUp,      // nobody wants the reservation any more
  kHello,        // the worker spoke, fenced
  kReady,        // the model is loaded
  kWork,         // first request handed over
  kRest,         // last request ended
  kDrain,        // release of a busy model: route nothing more to it
  kStop,         // release, idle sweep, terminate, eviction, shutdown
  kFault,        // protocol error, stall, lost socket
  kExit,         // the pidfd says it ended
  kReaped,       // its exit status was taken
  kSettled,      // last measurement and death record are in
  kRetired,      // its charge left the ledger
  kUnconfirmed,  // killed, but not gone in time
};
inline constexpr size_t kAllocationEventCount = static_cast<size_t>(AllocationEvent::kUnconfirmed) + 1;

enum class AllocationAction : uint8_t {
  kReject,  // cannot happen: logged, nothing changes
  kIgnore,  // came late: nothing changes
  kAwaitHello,
  kRetire,  // retire the charge
  kConfigure,
  kServe,
  kMarkBusy,
  kMarkIdle,
  kDrain,
  kKill,
  kHasten,  // a teardown under way: skip what is left of its patience
  kReap,
  kSettle,
  kAnswer,     // everyone who waits for the end of this allocation
  kRetryKill,  // and tell those who wait that it is unconfirmed
};

struct AllocationStep {
  AllocationState next;
  AllocationAction action;
};

AllocationStep Step(AllocationState state, AllocationEvent event);
std::string_view NameOf(AllocationEvent event);
std::string_view NameOf(AllocationAction action);

enum class RequestState : uint8_t {
  kQueued,      // waits for admission, or for its worker to be ready
  kAdmitted,    // holds a ticket
  kPrefill,     // handed to the worker
  kDecode,      // produces tokens
  kPaused,      // keeps its pages, out of the batch
  kCancelling,  // cancelled, the worker has not confirmed
  kDone,
  kFailed,
};
inline constexpr size_t kRequestStateCount = static_cast<size_t>(RequestState::kFailed) + 1;

enum class RequestEvent : uint8_t {
  kAdmit,
  kHandOver,
  kToken,
  kPause,
  kResume,
  kCancel,
  kFinish,      // the worker's done
  kFail,        // the worker's error, its death, a deadline, a refusal
  kLostWorker,  // its worker died and the request goes on in another
};
inline constexpr size_t kRequestEventCount = static_cast<size_t>(RequestEvent::kLostWorker) + 1;

enum class RequestAction : uint8_t {
  kReject,
  kIgnore,
  kGrant,    // hand request and ticket to whoever asked
  kSend,     // to the worker
  kDeliver,  // a delta to the sink
  kPause,
  kResume,
  kEndNow,  // cancelled before a worker knew of it
  kCancelInWorker,
  kEndDone,
  kEndError,
  kRequeue,
};

struct RequestStep {
  RequestState next;
  RequestAction action;
};

RequestStep Step(RequestState state, RequestEvent event);
std::string_view NameOf(RequestState state);
std::string_view NameOf(RequestEvent event);
std::string_view NameOf(RequestAction action);

constexpr bool IsTerminal(RequestState state) { return state >= RequestState::kDone; }

}  // namespace bulkhead::supervisor
