#include "tests/sim/lifecycle_model.h"

namespace bulkhead::sim {
namespace {

using State = admission::AllocationState;

constexpr std::array<std::string_view, kInputCount> kInputNames = {
    "SpawnStarted",    "SpawnFailed",     "LoadStarted", "LoadFinished", "Measured", "StopRouting",
    "TeardownStarted", "KillUnconfirmed", "Reaped",      "Settle",       "Free"};

struct Move {
  State from;
  Input input;
  State to;
};

constexpr Move kMoves[] = {
    {State::kReserved, Input::kSpawnStarted, State::kStarting},
    {State::kReserved, Input::kSpawnFailed, State::kFreed},
    {State::kReserved, Input::kStopRouting, State::kReserved},
    {State::kStarting, Input::kLoadStarted, State::kLoading},
    {State::kStarting, Input::kMeasured, State::kStarting},
    {State::kStarting, Input::kStopRouting, State::kStarting},
    {State::kStarting, Input::kTeardownStarted, State::kTeardown},
    {State::kLoading, Input::kLoadFinished, State::kIdle},
    {State::kLoading, Input::kMeasured, State::kLoading},
    {State::kLoading, Input::kStopRouting, State::kLoading},
    {State::kLoading, Input::kTeardownStarted, State::kTeardown},
    {State::kIdle, Input::kMeasured, State::kIdle},
    {State::kIdle, Input::kStopRouting, State::kIdle},
    {State::kIdle, Input::kTeardownStarted, State::kTeardown},
    {State::kBusy, Input::kMeasured, State::kBusy},
    {State::kBusy, Input::kStopRouting, State::kBusy},
    {State::kBusy, Input::kTeardownStarted, State::kTeardown},
    {State::kTeardown, Input::kMeasured, State::kTeardown},
    {State::kTeardown, Input::kTeardownStarted, State::kTeardown},
    {State::kTeardown, Input::kKillUnconfirmed, State::kStuck},
    {State::kTeardown, Input::kReaped, State::kReaped},
    {State::kStuck, Input::kMeasured, State::kStuck},
    {State::kStuck, Input::kReaped, State::kReaped},
    {State::kReaped, Input::kSettle, State::kSettled},
    {State::kSettled, Input::kFree, State::kFreed},
};

}  // namespace

std::string_view NameOf(Input input) { return kInputNames[static_cast<size_t>(input)]; }

std::optional<State> After(State from, Input input) {
  for (const Move& move : kMoves) {
    if (move.from == from && move.input == input) return move.to;
  }
  return std::nullopt;
}

}  // namespace bulkhead::sim
