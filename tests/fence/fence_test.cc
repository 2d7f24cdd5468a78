// A worker that tries what it must not: from the main thread and another, while loading and while serving, each with
// the fence and without. With it the process dies of SIGSYS; without it the same attempt succeeds, so the test sees the
// fence and not a probe that cannot work.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <tuple>

#include "base/sys.h"
#include "tests/worker/worker_process.h"

namespace bulkhead::worker {
namespace {

// Listens where the worker's "connect" goes.
UniqueFd ListenAbstract() {
  UniqueFd fd(sys::Socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string name = "bulkhead-fence-" + std::to_string(sys::GetPid());
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  EXPECT_EQ(sys::Bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
  EXPECT_EQ(sys::Listen(fd.get(), 8), 0);
  return fd;
}

using Case = std::tuple<const char*, const char*>;  // where, what

class FenceTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
#ifdef BULKHEAD_SANITIZER
    GTEST_SKIP() << "[sanitizer-no-memory-fence] a sanitizer build cannot be fenced";
#endif
    ASSERT_GE(SmallModel(), 0);
    listener_ = ListenAbstract();
  }
  // Runs until the probe has been tried, or the worker is gone.
  std::pair<Exit, std::string> Try(bool fenced) {
    WorkerProcess::Options options;
    options.program = "bulkhead-worker-test";
    if (!fenced) options.arguments = {"--fence-off"};
    options.model_fd = SmallModel();
    WorkerProcess worker(options);
    const auto& [where, what] = GetParam();
    EXPECT_TRUE(worker.Configure(std::string(where) + ":" + what));
    // A worker that lives on is told to go once it has come to the end of its load.
    if (worker.Await(v1::WorkerFrame::kReady).has_value()) {
      v1::DaemonFrame shutdown;
      shutdown.mutable_shutdown();
      (void)worker.Send(shutdown);
    }
    const auto exit = worker.Wait();
    EXPECT_TRUE(exit.has_value());
    return {exit.value_or(Exit{}), worker.Stderr()};
  }

  UniqueFd listener_;
};

TEST_P(FenceTest, KillsTheWorkerThatTriesAndWithoutItTheSameSucceeds) {
  const std::string what = std::get<1>(GetParam());
  const auto [fenced, words] = Try(true);
  EXPECT_EQ(fenced.signal, SIGSYS) << "exit code " << fenced.code << ": " << words;
  EXPECT_EQ(words.find("probe"), std::string::npos) << words;

  const auto [free, free_words] = Try(false);
  EXPECT_EQ(free.code, 0) << "signal " << free.signal << ": " << free_words;
  // A worker that became another program says nothing and exits with that one's code.
  if (what != "exec") {
    EXPECT_NE(free_words.find("probe " + what + ": done"), std::string::npos) << free_words;
  }
}

INSTANTIATE_TEST_SUITE_P(All, FenceTest,
                         testing::Combine(testing::Values("probe-load-main", "probe-load-thread", "probe-run-main",
                                                          "probe-run-thread"),
                                          testing::Values("open", "connect", "bind", "fork", "exec", "ptrace",
                                                          "map-code", "protect-code", "kill")),
                         [](const testing::TestParamInfo<Case>& info) {
                           std::string name = std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param);
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

TEST(PathFence, OpeningAPathIsRefusedBeforeTheFileIsRead) {
#ifdef BULKHEAD_SANITIZER
  GTEST_SKIP() << "[sanitizer-no-memory-fence] a sanitizer build cannot be fenced";
#endif
  for (const bool fenced : {true, false}) {
    WorkerProcess::Options options;
    options.program = "bulkhead-worker-test";
    if (!fenced) options.arguments = {"--fence-off"};
    options.model_fd = SmallModel();
    WorkerProcess worker(options);
    ASSERT_TRUE(worker.ConfigureAndAwaitReady("probe-paths:open"));
    worker.CloseControl();
    ASSERT_TRUE(worker.Wait().has_value());
    const std::string expected = fenced ? "probe open: errno " + std::to_string(EACCES) : "probe open: done";
    EXPECT_NE(worker.Stderr().find(expected), std::string::npos);
  }
}

}  // namespace
}  // namespace bulkhead::worker
