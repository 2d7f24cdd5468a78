// The simulation's command: many seeds, or one again. Usage: daemon_sim [--seeds N] [--first N] [--seed N] [--steps N]
//   --seeds N   seeds FIRST to FIRST + N - 1 (default 2000 from 1); every hundredth is run twice and must not differ
//   --seed N    this one, printing each step; what a failure asks for
// A violation prints the seed and ends with 1; so does a step or fault that no seed ever took (with 500 seeds or more).
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "daemon/log.h"
#include "tests/simulation/world.h"

namespace bulkhead::sim {
namespace {

constexpr const char* kMustHappen[] = {"worker crashes",
                                       "worker is stopped",
                                       "worker sleeps uninterruptibly",
                                       "worker talks rubbish",
                                       "load fails",
                                       "out of memory",
                                       "transfer fails",
                                       "transfers are cut",
                                       "disk fails",
                                       "spawns fail",
                                       "signals are late",
                                       "the machine was suspended",
                                       "memory changes",
                                       "the daemon is killed",
                                       "a state file is corrupt",
                                       "terminate",
                                       "release",
                                       "attach"};

int OpenDescriptors() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

struct Outcome {
  std::string violation;
  uint64_t digest = 0;
};

Outcome RunOne(uint64_t seed, int steps, const std::string& directory, World::Counts& counts, bool trace) {
  const int before = OpenDescriptors();
  Outcome outcome;
  {
    World world(seed, directory, counts, trace);
    outcome.violation = world.Run(steps);
    outcome.digest = world.digest();
  }
  const int after = OpenDescriptors();
  if (outcome.violation.empty() && after != before) {
    outcome.violation = fmt::format("{} descriptors before, {} after", before, after);
  }
  return outcome;
}

uint64_t Number(const char* text) { return std::strtoull(text, nullptr, 10); }

int Main(int argc, char** argv) {
  uint64_t seeds = 2000;
  uint64_t first = 1;
  int steps = 120;
  bool one = false;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    if (flag == "--seeds") seeds = Number(argv[i + 1]);
    if (flag == "--first") first = Number(argv[i + 1]);
    if (flag == "--steps") steps = static_cast<int>(Number(argv[i + 1]));
    if (flag == "--seed") {
      first = Number(argv[i + 1]);
      seeds = 1;
      one = true;
    }
  }
  std::signal(SIGPIPE, SIG_IGN);
  daemon::SetLogLevel(one ? "debug" : "off");
  // In memory: what is tried here is the code that writes, not a disk.
  char name[] = "/dev/shm/bulkhead-sim-XXXXXX";
  const std::string directory = ::mkdtemp(name);
  std::filesystem::create_directory(directory + "/models");
  for (int i = 0; i < kModels; ++i) std::ofstream(fmt::format("{}/models/m{}.gguf", directory, i)) << "GGUF " << i;
  World::Counts counts;
  // What libuv opens once and keeps is opened before descriptors are counted.
  { World warm(1, directory, counts, false); }
  const auto started = std::chrono::steady_clock::now();
  int code = 0;
  for (uint64_t seed = first; seed < first + seeds && code == 0; ++seed) {
    const Outcome outcome = RunOne(seed, steps, directory, counts, one);
    if (!outcome.violation.empty()) {
      fmt::print("daemon_sim: seed {}: {}\ndaemon_sim: again with: daemon_sim --seed {} --steps {}\n", seed,
                 outcome.violation, seed, steps);
      code = 1;
    } else if (seed % 100 == 0 && RunOne(seed, steps, directory, counts, false).digest != outcome.digest) {
      fmt::print("daemon_sim: seed {} ran differently the second time\n", seed);
      code = 1;
    }
  }
  for (const auto& [what, count] : counts.of) fmt::print("daemon_sim: {:8d} {}\n", count, what);
  for (const char* what : kMustHappen) {
    if (seeds < 500 || counts.of[what] > 0) continue;
    fmt::print("daemon_sim: it never happened that {}\n", what);
    code = 1;
  }
  const auto ms = (std::chrono::steady_clock::now() - started) / std::chrono::milliseconds(1);
  fmt::print("daemon_sim: {} seeds, {} answers, {} whole sequences, {} ms: {}\n", seeds, counts.terminals, counts.whole,
             ms, code == 0 ? "ok" : "FAILED");
  std::filesystem::remove_all(directory);
  return code;
}

}  // namespace
}  // namespace bulkhead::sim

int main(int argc, char** argv) { return bulkhead::sim::Main(argc, argv); }
