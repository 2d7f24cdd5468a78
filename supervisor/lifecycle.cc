#include "supervisor/lifecycle.h"

#include <array>

namespace bulkhead::supervisor {
namespace {

template <typename State, typename Event, typename Action>
struct Row {
  State state;
  Event event;
  State next;
  Action action;
};

constexpr auto kAllocationRows = [] {
  using S = AllocationState;
  using E = AllocationEvent;
  using A = AllocationAction;
  using R = Row<S, E, A>;
  return std::array{
      R{S::kReserved, E::kSpawned, S::kStarting, A::kAwaitHello},
      R{S::kReserved, E::kSpawnFailed, S::kFreed, A::kRetire},
      R{S::kReserved, E::kGivenUp, S::kFreed, A::kRetire},
      R{S::kReserved, E::kStop, S::kFreed, A::kRetire},

      R{S::kStarting, E::kHello, S::kLoading, A::kConfigure},
      R{S::kStarting, E::kDrain, S::kStarting, A::kDrain},
      R{S::kStarting, E::kStop, S::kTeardown, A::kKill},
      R{S::kStarting, E::kFault, S::kTeardown, A::kKill},
      R{S::kStarting, E::kExit, S::kTeardown, A::kReap},

      R{S::kLoading, E::kReady, S::kIdle, A::kServe},
      R{S::kLoading, E::kDrain, S::kLoading, A::kDrain},
      R{S::kLoading, E::kStop, S::kTeardown, A::kKill},
      R{S::kLoading, E::kFault, S::kTeardown, A::kKill},
      R{S::kLoading, E::kExit, S::kTeardown, A::kReap},

      R{S::kIdle, E::kWork, S::kBusy, A::kMarkBusy},
      R{S::kIdle, E::kStop, S::kTeardown, A::kKill},
      R{S::kIdle, E::kFault, S::kTeardown, A::kKill},
      R{S::kIdle, E::kExit, S::kTeardown, A::kReap},

      R{S::kBusy, E::kWork, S::kBusy, A::kIgnore},
      R{S::kBusy, E::kRest, S::kIdle, A::kMarkIdle},
      R{S::kBusy, E::kDrain, S::kBusy, A::kDrain},
      R{S::kBusy, E::kStop, S::kTeardown, A::kKill},
      R{S::kBusy, E::kFault, S::kTeardown, A::kKill},
      R{S::kBusy, E::kExit, S::kTeardown, A::kReap},

      R{S::kTeardown, E::kHello, S::kTeardown, A::kIgnore},
      R{S::kTeardown, E::kReady, S::kTeardown, A::kIgnore},
      R{S::kTeardown, E::kRest, S::kTeardown, A::kIgnore},
      R{S::kTeardown, E::kDrain, S::kTeardown, A::kIgnore},
      R{S::kTeardown, E::kFault, S::kTeardown, A::kIgnore},
      R{S::kTeardown, E::kStop, S::kTeardown, A::kHasten},
      R{S::kTeardown, E::kExit, S::kTeardown, A::kReap},
      R{S::kTeardown, E::kReaped, S::kReaped, A::kSettle},
      R{S::kTeardown, E::kUnconfirmed, S::kStuck, A::kRetryKill},

      R{S::kStuck, E::kHello, S::kStuck, A::kIgnore},
      R{S::kStuck, E::kReady, S::kStuck, A::kIgnore},
      R{S::kStuck, E::kRest, S::kStuck, A::kIgnore},
      R{S::kStuck, E::kDrain, S::kStuck, A::kIgnore},
      R{S::kStuck, E::kFault, S::kStuck, A::kIgnore},
      R{S::kStuck, E::kStop, S::kStuck, A::kRetryKill},
      R{S::kStuck, E::kExit, S::kStuck, A::kReap},
      R{S::kStuck, E::kReaped, S::kReaped, A::kSettle},
      R{S::kStuck, E::kUnconfirmed, S::kStuck, A::kRetryKill},

      // From here on everything is evidence already taken; what still arrives was on its way.
      R{S::kReaped, E::kRest, S::kReaped, A::kIgnore},
      R{S::kReaped, E::kDrain, S::kReaped, A::kIgnore},
      R{S::kReaped, E::kStop, S::kReaped, A::kIgnore},
      R{S::kReaped, E::kFault, S::kReaped, A::kIgnore},
      R{S::kReaped, E::kExit, S::kReaped, A::kIgnore},
      R{S::kReaped, E::kUnconfirmed, S::kReaped, A::kIgnore},
      R{S::kReaped, E::kSettled, S::kSettled, A::kRetire},

      R{S::kSettled, E::kRest, S::kSettled, A::kIgnore},
      R{S::kSettled, E::kDrain, S::kSettled, A::kIgnore},
      R{S::kSettled, E::kStop, S::kSettled, A::kIgnore},
      R{S::kSettled, E::kFault, S::kSettled, A::kIgnore},
      R{S::kSettled, E::kExit, S::kSettled, A::kIgnore},
      R{S::kSettled, E::kUnconfirmed, S::kSettled, A::kIgnore},
      R{S::kSettled, E::kRetired, S::kFreed, A::kAnswer},

      R{S::kFreed, E::kGivenUp, S::kFreed, A::kIgnore},
      R{S::kFreed, E::kRest, S::kFreed, A::kIgnore},
      R{S::kFreed, E::kDrain, S::kFreed, A::kIgnore},
      R{S::kFreed, E::kStop, S::kFreed, A::kIgnore},
      R{S::kFreed, E::kFault, S::kFreed, A::kIgnore},
      R{S::kFreed, E::kExit, S::kFreed, A::kIgnore},
      R{S::kFreed, E::kUnconfirmed, S::kFreed, A::kIgnore},
  };
}();

constexpr auto kRequestRows = [] {
  using S = RequestState;
  using E = RequestEvent;
  using A = RequestAction;
  using R = Row<S, E, A>;
  return std::array{
      R{S::kQueued, E::kAdmit, S::kAdmitted, A::kGrant},
      R{S::kQueued, E::kPause, S::kQueued, A::kIgnore},
      R{S::kQueued, E::kResume, S::kQueued, A::kIgnore},
      R{S::kQueued, E::kCancel, S::kDone, A::kEndNow},
      R{S::kQueued, E::kFail, S::kFailed, A::kEndError},
      R{S::kQueued, E::kLostWorker, S::kQueued, A::kRequeue},

      R{S::kAdmitted, E::kHandOver, S::kPrefill, A::kSend},
      R{S::kAdmitted, E::kPause, S::kAdmitted, A::kIgnore},
      R{S::kAdmitted, E::kResume, S::kAdmitted, A::kIgnore},
      R{S::kAdmitted, E::kCancel, S::kDone, A::kEndNow},
      R{S::kAdmitted, E::kFail, S::kFailed, A::kEndError},
      R{S::kAdmitted, E::kLostWorker, S::kQueued, A::kRequeue},

      R{S::kPrefill, E::kToken, S::kDecode, A::kDeliver},
      R{S::kPrefill, E::kPause, S::kPaused, A::kPause},
      R{S::kPrefill, E::kResume, S::kPrefill, A::kIgnore},
      R{S::kPrefill, E::kCancel, S::kCancelling, A::kCancelInWorker},
      R{S::kPrefill, E::kFinish, S::kDone, A::kEndDone},
      R{S::kPrefill, E::kFail, S::kFailed, A::kEndError},
      R{S::kPrefill, E::kLostWorker, S::kQueued, A::kRequeue},

      R{S::kDecode, E::kToken, S::kDecode, A::kDeliver},
      R{S::kDecode, E::kPause, S::kPaused, A::kPause},
      R{S::kDecode, E::kResume, S::kDecode, A::kIgnore},
      R{S::kDecode, E::kCancel, S::kCancelling, A::kCancelInWorker},
      R{S::kDecode, E::kFinish, S::kDone, A::kEndDone},
      R{S::kDecode, E::kFail, S::kFailed, A::kEndError},
      R{S::kDecode, E::kLostWorker, S::kQueued, A::kRequeue},

      // Tokens of a forward that was under way when the pause was sent.
      R{S::kPaused, E::kToken, S::kPaused, A::kDeliver},
      R{S::kPaused, E::kPause, S::kPaused, A::kIgnore},
      R{S::kPaused, E::kResume, S::kDecode, A::kResume},
      R{S::kPaused, E::kCancel, S::kCancelling, A::kCancelInWorker},
      R{S::kPaused, E::kFinish, S::kDone, A::kEndDone},
      R{S::kPaused, E::kFail, S::kFailed, A::kEndError},
      R{S::kPaused, E::kLostWorker, S::kQueued, A::kRequeue},

      R{S::kCancelling, E::kToken, S::kCancelling, A::kDeliver},
      R{S::kCancelling, E::kPause, S::kCancelling, A::kIgnore},
      R{S::kCancelling, E::kResume, S::kCancelling, A::kIgnore},
      R{S::kCancelling, E::kCancel, S::kCancelling, A::kIgnore},
      R{S::kCancelling, E::kFinish, S::kDone, A::kEndDone},
      R{S::kCancelling, E::kFail, S::kFailed, A::kEndError},

      R{S::kDone, E::kPause, S::kDone, A::kIgnore},
      R{S::kDone, E::kResume, S::kDone, A::kIgnore},
      R{S::kDone, E::kCancel, S::kDone, A::kIgnore},
      R{S::kDone, E::kFail, S::kDone, A::kIgnore},
      R{S::kFailed, E::kPause, S::kFailed, A::kIgnore},
      R{S::kFailed, E::kResume, S::kFailed, A::kIgnore},
      R{S::kFailed, E::kCancel, S::kFailed, A::kIgnore},
      R{S::kFailed, E::kFail, S::kFailed, A::kIgnore},
  };
}();

template <typename Result, typename Rows, typename State, typename Event, typename Action>
Result Find(const Rows& rows, State state, Event event, Action reject) {
  for (const auto& row : rows) {
    if (row.state == state && row.event == event) return {row.next, row.action};
  }
  return {state, reject};
}

}  // namespace

AllocationStep Step(AllocationState state, AllocationEvent event) {
  return Find<AllocationStep>(kAllocationRows, state, event, AllocationAction::kReject);
}

RequestStep Step(RequestState state, RequestEvent event) {
  return Find<RequestStep>(kRequestRows, state, event, RequestAction::kReject);
}

std::string_view NameOf(AllocationEvent event) {
  static constexpr std::array<std::string_view, kAllocationEventCount> kNames = {
      "spawned", "spawn-failed", "given-up", "hello",  "ready",   "work",    "rest",       "drain",
      "stop",    "fault",        "exit",     "reaped", "settled", "retired", "unconfirmed"};
  return kNames[static_cast<size_t>(event)];
}

std::string_view NameOf(AllocationAction action) {
  static constexpr std::array<std::string_view, 15> kNames = {
      "reject", "ignore", "await-hello", "retire", "configure", "serve",  "mark-busy", "mark-idle",
      "drain",  "kill",   "hasten",      "reap",   "settle",    "answer", "retry-kill"};
  return kNames[static_cast<size_t>(action)];
}

std::string_view NameOf(RequestState state) {
  static constexpr std::array<std::string_view, kRequestStateCount> kNames = {
      "QUEUED", "ADMITTED", "PREFILL", "DECODE", "PAUSED", "CANCELLING", "DONE", "FAILED"};
  return kNames[static_cast<size_t>(state)];
}

std::string_view NameOf(RequestEvent event) {
  static constexpr std::array<std::string_view, kRequestEventCount> kNames = {
      "admit", "hand-over", "token", "pause", "resume", "cancel", "finish", "fail", "lost-worker"};
  return kNames[static_cast<size_t>(event)];
}

std::string_view NameOf(RequestAction action) {
  static constexpr std::array<std::string_view, 12> kNames = {"reject",           "ignore",   "grant",     "send",
                                                              "deliver",          "pause",    "resume",    "end-now",
                                                              "cancel-in-worker", "end-done", "end-error", "requeue"};
  return kNames[static_cast<size_t>(action)];
}

}  // namespace bulkhead::supervisor
