// Every wrapper of base/sys.h fails with every error of its row in base/sys_errnos.h, in the code that calls it: once
// at the first call, once at a later one, and, for errors that last, from there on. Nothing may hang, leak a descriptor
// or leave a child; what fails says so with a reason. A pair that no scenario has met fails the test.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>

#include "base/sys.h"
#include "base/sys_errnos.h"
#include "tests/faults/errno_scenarios.h"

namespace bulkhead::faults {
namespace {

// What the hook does. Written by the test between scenarios only; the hook may run on libuv's threads as well.
struct Plan {
  std::string call;
  int error = 0;
  uint64_t first = 0;  // 1 = the first call of that name
  bool lasting = false;
  std::vector<std::pair<std::string, int>> also;
};

std::mutex g_mutex;
Plan g_plan;
std::map<std::string, uint64_t> g_calls;
std::atomic<bool> g_injected{false};

int Hook(const char* call) {
  const std::lock_guard lock(g_mutex);
  const uint64_t number = ++g_calls[call];
  for (const auto& [name, error] : g_plan.also) {
    if (name == call && name != g_plan.call) return error;
  }
  if (g_plan.call != call || number < g_plan.first) return 0;
  if (number > g_plan.first && !g_plan.lasting) return 0;
  g_injected = true;
  return g_plan.error;
}

int OpenDescriptors() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

// Kills and reaps what children there are; how many.
int EndChildren() {
  std::ifstream file(fmt::format("/proc/self/task/{}/children", ::getpid()));
  int count = 0;
  for (pid_t child = 0; file >> child; ++count) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  return count;
}

class ErrnoTest : public ::testing::Test {
 protected:
  ErrnoTest() {
    char name[] = "/tmp/bulkhead-errno-XXXXXX";
    directory_ = ::mkdtemp(name);
    std::signal(SIGPIPE, SIG_IGN);
  }
  ~ErrnoTest() override { std::filesystem::remove_all(directory_); }

  // Runs it under the plan; true where the plan's error was injected.
  bool Run(const Scenario& scenario, Plan plan) {
    plan.also = scenario.also;
    const std::string what = fmt::format("{}: {} fails with {} at call {}{}", scenario.name, plan.call,
                                         std::strerror(plan.error), plan.first, plan.lasting ? " and later" : "");
    {
      const std::lock_guard lock(g_mutex);
      g_plan = plan;
      g_calls.clear();
    }
    g_injected = false;
    const int before = OpenDescriptors();
    if (scenario.forked) {
      RunForked(scenario, what);
    } else {
      sys::SetFaultHook(Hook);
      const absl::Status status = scenario.run();
      sys::SetFaultHook(nullptr);
      EXPECT_TRUE(status.ok() || (ReasonOf(status) != Reason::kUnspecified && !Message(status).empty())) << what;
    }
    EXPECT_EQ(OpenDescriptors(), before) << what << ": descriptors leaked";
    // Where the kernel says that there is nothing to wait for, or refuses the signal, one may be left.
    const bool may_leave = plan.error == ECHILD || plan.call == "KillGroup";
    const int left = EndChildren();
    EXPECT_TRUE(left == 0 || may_leave) << what << ": " << left << " children are left";
    return g_injected;
  }

  // A child that says over a pipe which of its calls were made, and whether the error was injected.
  void RunForked(const Scenario& scenario, const std::string& what) {
    int fds[2];
    ASSERT_EQ(::pipe(fds), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      // Its words would only confuse; nor may it leave a core.
      (void)!::freopen("/dev/null", "w", stderr);
      std::signal(SIGABRT, [](int) { ::_exit(3); });
      static int report = fds[1];
      sys::SetFaultHook([](const char* call) {
        const int error = Hook(call);
        const std::string line = std::string(error != 0 ? "!" : "") + call + "\n";
        (void)!::write(report, line.data(), line.size());
        return error;
      });
      const absl::Status status = scenario.run();
      ::_exit(status.ok() ? 0 : 1);
    }
    ::close(fds[1]);
    std::string said;
    char buffer[4096];
    for (ssize_t got = 0; (got = ::read(fds[0], buffer, sizeof(buffer))) > 0;) said.append(buffer, got);
    ::close(fds[0]);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status)) << what << ": ended by signal " << WTERMSIG(status);
    for (size_t at = 0; at < said.size();) {
      const size_t end = said.find('\n', at);
      std::string call = said.substr(at, end - at);
      at = end + 1;
      if (call.starts_with('!')) {
        g_injected = true;
        call.erase(0, 1);
      }
      const std::lock_guard lock(g_mutex);
      ++g_calls[call];
    }
  }

  std::string directory_;
};

// An error that the same call would meet again, as opposed to one that is over at once.
bool Lasts(int error) { return error != EINTR && error != EAGAIN && error != ECONNABORTED && error != EEXIST; }

TEST_F(ErrnoTest, EveryWrapperFailsWithEveryErrorThatMattersAndNothingIsLost) {
  const std::vector<Scenario> scenarios = AllScenarios(directory_);
  std::map<std::string, std::map<std::string, uint64_t>> made;  // by scenario, calls without any fault
  // What libraries open once and keep is opened before anything is counted.
  for (const Scenario& scenario : scenarios) {
    if (!scenario.forked) (void)scenario.run();
  }
  for (const Scenario& scenario : scenarios) {
    Run(scenario, {});
    made[scenario.name] = g_calls;
  }
  size_t pairs = 0;
  size_t runs = 0;
  for (const sys::WrapperErrnos& row : sys::kWrapperErrnos) {
    const std::string wrapper(row.wrapper);
    for (const int error : row.errnos) {
      ++pairs;
      int visits = 0;
      for (const Scenario& scenario : scenarios) {
        const uint64_t calls = made[scenario.name][wrapper];
        if (calls == 0) continue;
        for (const uint64_t first : std::set<uint64_t>{1, (calls + 1) / 2, calls}) {
          visits += Run(scenario, {wrapper, error, first, false, {}});
          ++runs;
        }
        if (!Lasts(error)) continue;
        visits += Run(scenario, {wrapper, error, 1, true, {}});
        ++runs;
      }
      EXPECT_GT(visits, 0) << wrapper << " never failed with " << std::strerror(error);
    }
  }
  fmt::print("errno: {} wrappers, {} pairs, {} runs\n", std::size(sys::kWrapperErrnos), pairs, runs);
}

}  // namespace
}  // namespace bulkhead::faults
