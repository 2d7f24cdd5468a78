// Prints the two lifecycle tables as Promela: a name for every state, event and action, and the step of every pair, so
// that docs/model/allocation.pml can neither name what does not exist nor disagree with the code.
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

#include "supervisor/lifecycle.h"

namespace bulkhead::supervisor {
namespace {

constexpr auto kLastAllocationAction = AllocationAction::kRetryKill;
constexpr size_t kPiece = 30;
constexpr auto kLastRequestAction = RequestAction::kRequeue;

std::string Name(const char* prefix, std::string_view name) {
  std::string out = prefix;
  for (const char c : name) out += c == '-' ? '_' : c;
  return out;
}

template <typename T, typename NameFn>
void Names(const char* prefix, size_t count, NameFn name) {
  for (size_t i = 0; i < count; ++i) {
    std::printf("#define %s %zu\n", Name(prefix, name(static_cast<T>(i))).c_str(), i);
  }
}

// Two arrays by state * events + event: the next state, and the action with 0 for a rejected pair.
template <typename State, typename Event>
void Steps(const char* prefix, size_t states, size_t events) {
  std::printf("hidden byte %s_next[%zu];\nhidden byte %s_action[%zu];\n", prefix, states * events, prefix,
              states * events);
  std::printf("#define %s_EVENTS %zu\ninline load_%s() {\n", prefix, events, prefix);
  for (size_t i = 0; i < states * events; ++i) {
    const auto step = Step(static_cast<State>(i / events), static_cast<Event>(i % events));
    // In pieces: spin undoes at most 256 assignments at once.
    if (i % kPiece == 0) std::printf("%s  d_step {", i == 0 ? "" : "  };\n");
    std::printf(" %s_next[%zu] = %zu; %s_action[%zu] = %zu;", prefix, i, static_cast<size_t>(step.next), prefix, i,
                static_cast<size_t>(step.action));
  }
  std::printf("  }\n}\n");
}

}  // namespace
}  // namespace bulkhead::supervisor

int main() {
  using namespace bulkhead::supervisor;
  const auto state = [](AllocationState s) { return Name("S_", bulkhead::admission::NameOf(s)); };
  const auto event = [](AllocationEvent e) { return Name("E_", NameOf(e)); };
  const auto action = [](AllocationAction a) { return Name("A_", NameOf(a)); };
  const auto request_state = [](RequestState s) { return Name("R_", NameOf(s)); };
  const auto request_event = [](RequestEvent e) { return Name("Q_", NameOf(e)); };
  const auto request_action = [](RequestAction a) { return Name("D_", NameOf(a)); };
  const size_t allocation_states = bulkhead::admission::kAllocationStateCount;
  std::printf("/* Printed by tests/model/lifecycle_names.cc from supervisor/lifecycle.cc. */\n");
  Names<AllocationState>("", allocation_states, state);
  Names<AllocationEvent>("", kAllocationEventCount, event);
  Names<AllocationAction>("", static_cast<size_t>(kLastAllocationAction) + 1, action);
  Names<RequestState>("", kRequestStateCount, request_state);
  Names<RequestEvent>("", kRequestEventCount, request_event);
  Names<RequestAction>("", static_cast<size_t>(kLastRequestAction) + 1, request_action);
  Steps<AllocationState, AllocationEvent>("allocation", allocation_states, kAllocationEventCount);
  Steps<RequestState, RequestEvent>("request", kRequestStateCount, kRequestEventCount);
}
