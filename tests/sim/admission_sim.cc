// admission_sim [--seed N] [--events N] [--no-coverage] [--trace N]: the seeded simulation of admission. Exit code 0;
// 10 where an invariant does not hold; 11 where the run did not visit everything it must.
#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <string_view>

#include "tests/sim/simulation.h"
#include "tests/sim/violation.h"

namespace bulkhead::sim {
namespace {

constexpr uint64_t kLeastPerVerdict = 1000;

struct Options {
  uint64_t seed = 1;
  uint64_t events = 1'000'000;
  bool coverage = true;
  uint64_t trace = 0;  // print the last so many events
};

bool Parse(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--no-coverage") {
      options->coverage = false;
      continue;
    }
    uint64_t* value = flag == "--seed"     ? &options->seed
                      : flag == "--events" ? &options->events
                      : flag == "--trace"  ? &options->trace
                                           : nullptr;
    if (value == nullptr || ++i == argc) return false;
    const char* end = argv[i] + std::strlen(argv[i]);
    if (std::from_chars(argv[i], end, *value).ptr != end) return false;
  }
  return true;
}

// Prints the histogram; false where something was visited too rarely.
bool Report(const Histogram& histogram) {
  bool complete = true;
  fmt::print("events\n");
  for (const auto& [name, count] : histogram.events) fmt::print("  {:<28} {:>9}\n", name, count);
  fmt::print("actions\n");
  for (const auto& [name, count] : histogram.actions) fmt::print("  {:<28} {:>9}\n", name, count);
  fmt::print("verdicts\n");
  for (size_t i = 0; i < histogram.verdicts.size(); ++i) {
    const bool enough = histogram.verdicts[i] >= kLeastPerVerdict;
    complete = complete && enough;
    fmt::print("  {:<28} {:>9}{}\n", NameOf(static_cast<Verdict>(i)), histogram.verdicts[i],
               enough ? "" : "  TOO FEW, at least 1000");
  }
  fmt::print("lifecycle, state by input\n  {:<9}", "");
  for (size_t input = 0; input < kInputCount; ++input) fmt::print(" {:>16}", NameOf(static_cast<Input>(input)));
  fmt::print("\n");
  for (size_t state = 0; state < histogram.cells.size(); ++state) {
    fmt::print("  {:<9}", NameOf(static_cast<AllocationState>(state)));
    for (const uint64_t count : histogram.cells[state]) {
      complete = complete && count > 0;
      fmt::print(" {:>16}", count);
    }
    fmt::print("\n");
  }
  return complete;
}

int Main(int argc, char** argv) {
  Options options;
  if (!Parse(argc, argv, &options)) {
    fmt::print(stderr, "usage: {} [--seed N] [--events N] [--no-coverage] [--trace N]\n", argv[0]);
    return 2;
  }
  CurrentPosition().seed = options.seed;
  Simulation simulation(options.seed);
  for (uint64_t event = 1; event <= options.events; ++event) {
    simulation.set_trace(event + options.trace > options.events);
    simulation.Step(event);
  }
  const bool complete = Report(simulation.histogram());
  fmt::print("seed {}, {} events, digest {:016x}\n", options.seed, options.events, simulation.digest());
  if (options.coverage && !complete) {
    fmt::print("COVERAGE: not everything was visited\n");
    return kExitCoverage;
  }
  return 0;
}

}  // namespace
}  // namespace bulkhead::sim

int main(int argc, char** argv) { return bulkhead::sim::Main(argc, argv); }
