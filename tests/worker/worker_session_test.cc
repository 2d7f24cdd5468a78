// The real worker on a small random model, with this test in the daemon's place.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "base/build_id.h"
#include "base/sys.h"
#include "ipc/limits.h"
#include "ipc/worker_abi.h"
#include "tests/worker/worker_process.h"

namespace bulkhead::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using v1::WorkerFrame;

WorkerProcess::Options Plain() { return {"bulkhead-worker", {}, SmallModel(), 0}; }
WorkerProcess::Options Hooked(std::vector<std::string> arguments = {}) {
  return {"bulkhead-worker-test", std::move(arguments), SmallModel(), 0};
}

struct Answer {
  std::vector<int32_t> ids;
  std::string text;
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
  v1::Reason error = v1::REASON_UNSPECIFIED;
  uint32_t prompt_tokens = 0;
};

// Reads steps until every one of `handles` has its terminal.
std::map<uint64_t, Answer> Collect(WorkerProcess& worker, size_t handles) {
  std::map<uint64_t, Answer> answers;
  size_t ended = 0;
  while (ended < handles) {
    const auto frame = worker.Await(WorkerFrame::kStep);
    if (!frame.has_value()) {
      ADD_FAILURE() << "the worker fell silent";
      return answers;
    }
    for (const v1::SequenceStep& step : frame->step().sequences()) {
      Answer& answer = answers[step.handle()];
      EXPECT_EQ(step.index(), answer.ids.size());
      EXPECT_EQ(answer.finish, v1::FINISH_REASON_UNSPECIFIED) << "something after the terminal";
      for (const v1::Token& token : step.tokens()) answer.ids.push_back(token.id());
      answer.text += step.text();
      answer.finish = step.finish_reason();
      answer.error = step.error_reason();
      answer.prompt_tokens = step.usage().prompt_tokens();
      if (answer.finish != v1::FINISH_REASON_UNSPECIFIED || answer.error != v1::REASON_UNSPECIFIED) ++ended;
    }
  }
  return answers;
}

TEST(WorkerSession, SaysHelloLoadsAndBecomesReady) {
  WorkerProcess worker(Plain());
  const auto hello = worker.Await(WorkerFrame::kHello);
  ASSERT_TRUE(hello.has_value());
  EXPECT_EQ(hello->hello().build(), BuildId());
  EXPECT_EQ(hello->hello().pid(), worker.pid());
  v1::DaemonFrame configure;
  configure.mutable_configure()->set_context(256);
  configure.mutable_configure()->set_sequences(2);
  configure.mutable_configure()->set_threads(1);
  ASSERT_TRUE(worker.Send(configure));
  const auto ready = worker.Await(WorkerFrame::kReady);
  ASSERT_TRUE(ready.has_value());
  EXPECT_EQ(ready->ready().context(), 256u);
  EXPECT_EQ(ready->ready().sequences(), 2u);
  EXPECT_EQ(ready->ready().manifest().architecture(), "qwen3");
  EXPECT_EQ(ready->ready().manifest().chat_template(), "chatml");
  EXPECT_GT(ready->ready().manifest().kv_bytes_per_token(), 0u);
  EXPECT_GT(ready->ready().private_bytes(), 0u);
}

TEST(WorkerSession, GeneratesAlikeAloneAndAmongOthersAndResumed) {
  WorkerProcess worker(Plain());
  ASSERT_TRUE(worker.ConfigureAndAwaitReady());
  ASSERT_TRUE(worker.Send(GenerateFrame(1, {5, 6, 7}, 20)));
  const Answer alone = Collect(worker, 1)[1];
  ASSERT_EQ(alone.ids.size(), 20u);
  EXPECT_EQ(alone.finish, v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(alone.prompt_tokens, 3u);

  for (uint64_t handle = 2; handle < 6; ++handle) ASSERT_TRUE(worker.Send(GenerateFrame(handle, {5, 6, 7}, 20)));
  for (const auto& [handle, answer] : Collect(worker, 4)) EXPECT_EQ(answer.ids, alone.ids) << handle;

  v1::DaemonFrame resume = GenerateFrame(9, {5, 6, 7}, 20);
  resume.mutable_generate()->mutable_resume_ids()->Add(alone.ids.begin(), alone.ids.begin() + 12);
  ASSERT_TRUE(worker.Send(resume));
  std::vector<int32_t> rest;
  uint64_t first_index = 0;
  for (bool over = false; !over;) {
    const auto frame = worker.Await(WorkerFrame::kStep);
    ASSERT_TRUE(frame.has_value());
    for (const v1::SequenceStep& step : frame->step().sequences()) {
      if (rest.empty() && step.tokens_size() > 0) first_index = step.index();
      for (const v1::Token& token : step.tokens()) rest.push_back(token.id());
      over = step.finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
    }
  }
  EXPECT_EQ(first_index, 12u);
  EXPECT_EQ(rest, std::vector<int32_t>(alone.ids.begin() + 12, alone.ids.end()));
}

TEST(WorkerSession, TellsThePromptsIdsAndTokenizesTheSame) {
  WorkerProcess worker(Plain());
  ASSERT_TRUE(worker.ConfigureAndAwaitReady());
  v1::DaemonFrame tokenize;
  tokenize.mutable_tokenize()->set_handle(3);
  tokenize.mutable_tokenize()->set_text("a quiet harbour");
  tokenize.mutable_tokenize()->set_add_special(true);
  tokenize.mutable_tokenize()->set_parse_special(true);
  ASSERT_TRUE(worker.Send(tokenize));
  const auto tokenized = worker.Await(WorkerFrame::kTokenized);
  ASSERT_TRUE(tokenized.has_value());
  EXPECT_GT(tokenized->tokenized().ids_size(), 0);

  v1::DaemonFrame generate = GenerateFrame(4, {}, 2);
  generate.mutable_generate()->set_prompt("a quiet harbour");
  ASSERT_TRUE(worker.Send(generate));
  const auto started = worker.Await(WorkerFrame::kStarted);
  ASSERT_TRUE(started.has_value());
  EXPECT_EQ(std::vector<int32_t>(started->started().prompt_ids().begin(), started->started().prompt_ids().end()),
            std::vector<int32_t>(tokenized->tokenized().ids().begin(), tokenized->tokenized().ids().end()));
}

TEST(WorkerSession, AnswersEveryHandleOnceAlsoRefusedOnes) {
  WorkerProcess worker(Plain());
  ASSERT_TRUE(worker.ConfigureAndAwaitReady());
  v1::DaemonFrame empty = GenerateFrame(1, {}, 5);
  empty.mutable_generate()->clear_input();
  ASSERT_TRUE(worker.Send(empty));
  ASSERT_TRUE(worker.Send(GenerateFrame(2, {1 << 30}, 5)));
  v1::DaemonFrame book = GenerateFrame(3, {}, 5);
  book.mutable_generate()->set_prompt(std::string(1 << 20, 'x'));
  ASSERT_TRUE(worker.Send(book));
  auto answers = Collect(worker, 3);
  EXPECT_EQ(answers[1].error, v1::REASON_INVALID_REQUEST);
  EXPECT_EQ(answers[2].error, v1::REASON_INVALID_REQUEST);
  EXPECT_EQ(answers[3].error, v1::REASON_CONTEXT_TOO_LARGE);
}

TEST(WorkerSession, CancelsEndsWithOneTerminalAndLivesOn) {
  WorkerProcess worker(Plain());
  ASSERT_TRUE(worker.ConfigureAndAwaitReady());
  ASSERT_TRUE(worker.Send(GenerateFrame(1, {5, 6}, 0)));
  ASSERT_TRUE(worker.Await(WorkerFrame::kStarted).has_value());
  v1::DaemonFrame cancel;
  cancel.mutable_cancel()->set_handle(1);
  ASSERT_TRUE(worker.Send(cancel));
  EXPECT_EQ(Collect(worker, 1)[1].finish, v1::FINISH_REASON_CANCELLED);
  ASSERT_TRUE(worker.Send(GenerateFrame(2, {5, 6}, 3)));
  EXPECT_EQ(Collect(worker, 1)[2].ids.size(), 3u);
}

TEST(WorkerSession, ShutdownCancelsAnswersAndExitsWithZero) {
  WorkerProcess worker(Plain());
  ASSERT_TRUE(worker.ConfigureAndAwaitReady());
  ASSERT_TRUE(worker.Send(GenerateFrame(1, {5, 6}, 0)));
  ASSERT_TRUE(worker.Await(WorkerFrame::kStarted).has_value());
  v1::DaemonFrame shutdown;
  shutdown.mutable_shutdown();
  ASSERT_TRUE(worker.Send(shutdown));
  EXPECT_EQ(Collect(worker, 1)[1].error, v1::REASON_SHUTTING_DOWN);
  ASSERT_TRUE(worker.Wait().has_value());
  EXPECT_EQ(worker.Wait()->code, ipc::kWorkerExitOk);
}

TEST(WorkerSession, AFileThatIsNoModelFailsTheLoadAndExitsWithZero) {
  WorkerProcess::Options options = Plain();
  const UniqueFd rubbish(open("/etc/passwd", O_RDONLY | O_CLOEXEC));
  options.model_fd = rubbish.get();
  WorkerProcess worker(options);
  ASSERT_TRUE(worker.Configure());
  const auto failed = worker.Await(WorkerFrame::kLoadFailed);
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->load_failed().reason(), v1::REASON_MODEL_INVALID);
  EXPECT_EQ(worker.Wait()->code, ipc::kWorkerExitOk);
}

TEST(WorkerSession, TheRealBuildRefusesTestHooks) {
  WorkerProcess worker(Plain());
  ASSERT_TRUE(worker.Configure("hang-in-load"));
  ASSERT_TRUE(worker.Wait().has_value());
  EXPECT_EQ(worker.Wait()->code, ipc::kWorkerExitProtocol);
}

TEST(WorkerSession, RubbishOnTheControlSocketEndsIt) {
  WorkerProcess worker(Plain());
  ASSERT_TRUE(worker.ConfigureAndAwaitReady());
  v1::DaemonFrame again;
  again.mutable_configure()->set_context(5);
  ASSERT_TRUE(worker.Send(again));
  EXPECT_EQ(worker.Wait()->code, ipc::kWorkerExitProtocol);
}

// The daemon's end closes: within a second, whatever the worker is at.
class DaemonGone : public testing::TestWithParam<const char*> {};

TEST_P(DaemonGone, EndsTheWorkerWithinASecond) {
  WorkerProcess worker(Hooked());
  const std::string at = GetParam();
  if (at == "hello") {
    ASSERT_TRUE(worker.Await(WorkerFrame::kHello).has_value());
  } else if (at == "load") {
    ASSERT_TRUE(worker.Configure("hang-in-load"));
    ASSERT_TRUE(worker.Await(WorkerFrame::kHeartbeat).has_value());
  } else {
    ASSERT_TRUE(worker.ConfigureAndAwaitReady(at == "hung" ? "hang-at-token:2" : ""));
    if (at != "idle") {
      ASSERT_TRUE(worker.Send(GenerateFrame(1, {5, 6}, 0)));
      ASSERT_TRUE(worker.Await(WorkerFrame::kStep).has_value());
    }
  }
  worker.CloseControl();
  const auto exit = worker.Wait(seconds(1));
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, ipc::kWorkerExitDaemonGone);
}

INSTANTIATE_TEST_SUITE_P(InEachPhase, DaemonGone, testing::Values("hello", "load", "idle", "decode", "hung"),
                         [](const auto& info) { return std::string(info.param); });

TEST(WorkerSession, ADaemonGoneBeforeTheDeathSignalWasSetIsSeenAfterIt) {
  WorkerProcess worker(Hooked({"--hook=sleep-at-start:300"}));
  worker.CloseControl();
  const auto exit = worker.Wait(seconds(10));
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, ipc::kWorkerExitDaemonGone);
}

TEST(WorkerSession, AHungEngineShowsAsProgressThatStopsWhileHeartbeatsGoOn) {
  WorkerProcess worker(Hooked());
  ASSERT_TRUE(worker.ConfigureAndAwaitReady("hang-at-token:3"));
  ASSERT_TRUE(worker.Send(GenerateFrame(1, {5, 6}, 0)));
  uint64_t last = 0;
  int still = 0;
  for (int i = 0; i < 20 && still < 3; ++i) {
    const auto beat = worker.Await(WorkerFrame::kHeartbeat);
    ASSERT_TRUE(beat.has_value());
    still = beat->heartbeat().progress() == last ? still + 1 : 0;
    last = beat->heartbeat().progress();
  }
  EXPECT_EQ(still, 3);
}

TEST(WorkerSession, RunningOutOfMemoryIsReportedOnBothWaysWithItsOwnExitCode) {
#ifdef BULKHEAD_SANITIZER
  GTEST_SKIP() << "[sanitizer-no-memory-fence] a sanitizer build has no memory fence";
#endif
  for (const char* const hook : {"allocate-in-load", "allocate-at-token:2"}) {
    WorkerProcess::Options options = Hooked();
    options.data_limit_bytes = uint64_t{160} << 20;
    WorkerProcess worker(options);
    ASSERT_TRUE(worker.Configure(hook));
    if (std::string(hook).find("token") != std::string::npos) {
      ASSERT_TRUE(worker.Await(WorkerFrame::kReady).has_value());
      ASSERT_TRUE(worker.Send(GenerateFrame(1, {5, 6}, 0)));
    }
    const auto failed = worker.Await(WorkerFrame::kLoadFailed);
    ASSERT_TRUE(failed.has_value());
    EXPECT_EQ(failed->load_failed().reason(), v1::REASON_WORKER_OOM);
    EXPECT_EQ(worker.Wait()->code, ipc::kWorkerExitOutOfMemory);
    const auto report = ipc::ParseOutOfMemory(worker.Stderr());
    ASSERT_TRUE(report.has_value());
    EXPECT_EQ(report->wanted_bytes, uint64_t{8} << 20);
    EXPECT_EQ(report->limit_bytes, options.data_limit_bytes);
    EXPECT_GT(report->in_use_bytes, uint64_t{64} << 20);
    EXPECT_LE(report->in_use_bytes, options.data_limit_bytes);
  }
}

// A copy in memory, which this test may change under the worker's map.
UniqueFd CopyOfModel() {
  UniqueFd copy(sys::MemfdCreate("model", 0));
  std::vector<char> buffer(1 << 16);
  off_t at = 0;
  ssize_t got = 0;
  while ((got = sys::Pread(SmallModel(), buffer.data(), buffer.size(), at)) > 0) {
    EXPECT_EQ(sys::Write(copy.get(), buffer.data(), static_cast<size_t>(got)), got);
    at += got;
  }
  return copy;
}

TEST(WorkerSession, AFileThatShrinksUnderTheWorkerEndsItWithSigbusAndAWord) {
#ifdef BULKHEAD_SANITIZER
  GTEST_SKIP() << "[sanitizer-no-memory-fence] a sanitizer takes SIGBUS for itself";
#endif
  const UniqueFd copy = CopyOfModel();
  WorkerProcess::Options options = Plain();
  options.model_fd = copy.get();
  WorkerProcess worker(options);
  ASSERT_TRUE(worker.ConfigureAndAwaitReady());
  ASSERT_EQ(sys::Ftruncate(copy.get(), 4096), 0);
  ASSERT_TRUE(worker.Send(GenerateFrame(1, {5, 6}, 5)));
  ASSERT_TRUE(worker.Wait().has_value());
  EXPECT_EQ(worker.Wait()->signal, SIGBUS);
  EXPECT_NE(worker.Stderr().find("was changed or truncated"), std::string::npos);
}

TEST(WorkerSession, AnInstructionTheProcessorLacksEndsItWithSigillAndAWord) {
  WorkerProcess worker(Hooked());
  ASSERT_TRUE(worker.ConfigureAndAwaitReady("illegal-at-token:2"));
  ASSERT_TRUE(worker.Send(GenerateFrame(1, {5, 6}, 5)));
  ASSERT_TRUE(worker.Wait().has_value());
  EXPECT_EQ(worker.Wait()->signal, SIGILL);
  EXPECT_NE(worker.Stderr().find("lacks an instruction"), std::string::npos);
}

TEST(WorkerSession, IsCalledByItsNameInTheProcessList) {
  WorkerProcess worker(Plain());
  ASSERT_TRUE(worker.Await(WorkerFrame::kHello).has_value());
  std::array<char, 32> name;
  const std::string path = "/proc/" + std::to_string(worker.pid()) + "/comm";
  const ssize_t size = sys::ReadSmallFile(AT_FDCWD, path.c_str(), name);
  ASSERT_GT(size, 0);
  EXPECT_EQ(std::string(name.data(), static_cast<size_t>(size)), "bulkhead-worker\n");
}

TEST(WorkerSession, StandsBehindItsFenceWhileServing) {
#ifdef BULKHEAD_SANITIZER
  GTEST_SKIP() << "[sanitizer-no-memory-fence] a sanitizer build cannot be fenced";
#endif
  WorkerProcess worker(Plain());
  ASSERT_TRUE(worker.ConfigureAndAwaitReady());
  const std::string folder = "/proc/" + std::to_string(worker.pid());
  std::vector<char> buffer(4096);
  const auto read = [&](const std::string& file) {
    const ssize_t size = sys::ReadSmallFile(AT_FDCWD, (folder + file).c_str(), buffer);
    return std::string(buffer.data(), size > 0 ? static_cast<size_t>(size) : 0);
  };
  const std::string status = read("/status");
  EXPECT_NE(status.find("NoNewPrivs:\t1"), std::string::npos) << status;
  EXPECT_NE(status.find("Seccomp:\t2"), std::string::npos) << status;
  EXPECT_NE(status.find("Seccomp_filters:\t2"), std::string::npos) << status;
  EXPECT_EQ(read("/oom_score_adj"), "800\n");
}

TEST(WorkerSession, AFrameLargerThanAnyClientsIsStillARequest) {
  WorkerProcess worker(Plain());
  ASSERT_TRUE(worker.ConfigureAndAwaitReady());
  v1::DaemonFrame frame;
  frame.mutable_tokenize()->set_handle(1);
  frame.mutable_tokenize()->set_text(std::string(ipc::kDefaultMaxFrame, 'x'));
  ASSERT_TRUE(worker.Send(frame));
  EXPECT_TRUE(worker.Await(WorkerFrame::kTokenized).has_value());
}

TEST(WorkerSession, WhileTheDaemonDoesNotReadTheSequencesPauseAndThenGoOn) {
  WorkerProcess worker(Hooked());
  // The abort tells how far the engine has come without a byte being read.
  ASSERT_TRUE(worker.ConfigureAndAwaitReady("abort-at-token:100"));
  v1::DaemonFrame large;
  large.mutable_tokenize()->set_text(std::string(2 << 20, 'x'));
  ASSERT_TRUE(worker.Send(large));
  ASSERT_TRUE(worker.Send(GenerateFrame(1, {5, 6, 7}, 400)));
  EXPECT_FALSE(worker.Wait(seconds(2)).has_value()) << "100 tokens were made for nobody";
  while (worker.Receive(seconds(10)).has_value()) {
  }
  ASSERT_TRUE(worker.Wait().has_value());
  EXPECT_EQ(worker.Wait()->signal, SIGABRT);
}

// Nice values of the process's threads, ascending.
std::vector<int> NiceValues(pid_t pid) {
  std::vector<int> values;
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    std::ifstream file(task.path() / "stat");
    std::string text((std::istreambuf_iterator<char>(file)), {});
    std::istringstream rest(text.substr(text.rfind(')') + 2));
    std::string word;
    for (int field = 3; field <= 19; ++field) rest >> word;
    values.push_back(std::stoi(word));
  }
  std::sort(values.begin(), values.end());
  return values;
}

TEST(WorkerSession, TheLoadingThreadAloneStepsBackBehindThoseThatServe) {
  WorkerProcess worker(Hooked());
  ASSERT_TRUE(worker.Configure("hang-in-load"));
  ASSERT_TRUE(worker.Await(WorkerFrame::kHeartbeat).has_value());
  const std::vector<int> values = NiceValues(worker.pid());
  ASSERT_GE(values.size(), 4u);
  EXPECT_GE(values.back(), 10);
  for (size_t i = 0; i + 1 < values.size(); ++i) EXPECT_EQ(values[i], values.front());
  EXPECT_LT(values.front(), values.back());
}

}  // namespace
}  // namespace bulkhead::worker
