// `bulkhead run` against a scripted daemon: what it sends and prints, and how Ctrl-C and a closed pipe end it.
#include "tests/client/command.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>

#include "tests/client/fake_daemon.h"

namespace bulkhead {
namespace {

using nlohmann::json;

Outcome RunAgainst(FakeDaemon& daemon, std::vector<std::string> arguments, const std::string& input = "") {
  arguments.insert(arguments.begin(), {"--socket", daemon.socket(), "run", "demo"});
  return RunBulkhead(arguments, input);
}

// `bulkhead run demo` and `arguments`, against a daemon that gives `answer` to everything.
Outcome RunWith(const FakeDaemon::Answer& answer, std::vector<std::string> arguments) {
  FakeDaemon daemon([&](const v1::ClientFrame&, int) { return answer; });
  return RunAgainst(daemon, std::move(arguments));
}

TEST(RunVerb, StreamsTheTextAndEndsItsLine) {
  const Outcome outcome = RunWith(Story({"Once ", "upon"}), {"Tell"});
  EXPECT_EQ(outcome.out, "Once upon\n");
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.exit_code, 0);
}

TEST(RunVerb, PrintsEachEventAsOneJsonLine) {
  const auto lines = RunWith(Story({"a"}), {"x", "--json"}).lines();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], R"({"event":"started","inference_id":"inf-1","allocation_id":"demo#a.1","seed":42,)"
                      R"("prompt_tokens":3,"context":512})");
  EXPECT_EQ(lines[1], R"({"event":"delta","index":0,"text":"a","tokens":[{"id":10}]})");
  EXPECT_EQ(json::parse(lines[2])["event"], "done");
  EXPECT_EQ(json::parse(lines[2])["finish_reason"], "STOP");
  EXPECT_EQ(json::parse(lines[2])["usage"]["completion_tokens"], 1);
}

TEST(RunVerb, PrintsWaitingAsJsonButNotOnAPipe) {
  FakeDaemon::Answer answer;
  answer.frames.emplace_back().mutable_queued()->set_reason("WAITING_FOR_MEMORY");
  answer.frames.emplace_back().mutable_loading()->set_phase("weights");
  for (const v1::ServerFrame& frame : Story({"a"}).frames) answer.frames.push_back(frame);
  EXPECT_EQ(RunWith(answer, {"x"}).err, "");
  const auto lines = RunWith(answer, {"x", "--json"}).lines();
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[0], R"({"event":"queued","position":0,"reason":"WAITING_FOR_MEMORY"})");
  EXPECT_EQ(lines[1], R"({"event":"loading","phase":"weights","done":0,"total":0})");
}

TEST(RunVerb, WithoutStreamPrintsTheWholeAtTheEnd) {
  EXPECT_EQ(RunWith(Story({"a", "b"}), {"x", "--no-stream"}).out, "ab\n");
  const auto lines = RunWith(Story({"a", "b"}), {"x", "--no-stream", "--json"}).lines();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[1], R"({"event":"delta","index":0,"text":"ab","tokens":[{"id":10},{"id":11}]})");
}

TEST(RunVerb, PrintsIdsInsteadOfText) {
  EXPECT_EQ(RunWith(Story({"a", "b"}), {"x", "--ids"}).out, "10 11\n");
  EXPECT_EQ(RunWith(Story({"a", "b"}), {"x", "--ids", "--no-stream"}).out, "10 11\n");
}

TEST(RunVerb, SendsEveryFlag) {
  FakeDaemon daemon([](const v1::ClientFrame&, int) { return Story({"a"}); });
  RunAgainst(daemon, {"Hi",
                      "--system",
                      "S",
                      "--max-tokens",
                      "7",
                      "--temperature",
                      "0.5",
                      "--top-k",
                      "3",
                      "--top-p",
                      "0.9",
                      "--min-p",
                      "0.1",
                      "--repeat-penalty",
                      "1.25",
                      "--seed",
                      "18446744073709551615",
                      "--stop",
                      "a",
                      "--stop",
                      "b",
                      "--ignore-eos",
                      "--context",
                      "99",
                      "--timeout",
                      "2m",
                      "--priority",
                      "batch"});
  ASSERT_EQ(daemon.received().size(), 1u);
  const v1::GenerateRequest request = daemon.received()[0].generate();
  EXPECT_EQ(request.model().name(), "demo");
  ASSERT_EQ(request.messages().messages_size(), 2);
  EXPECT_EQ(request.messages().messages(0).role(), "system");
  EXPECT_EQ(request.messages().messages(1).content(), "Hi");
  EXPECT_EQ(request.limits().max_tokens(), 7u);
  EXPECT_EQ(request.limits().context(), 99u);
  EXPECT_EQ(request.limits().deadline_ms(), 120'000u);
  EXPECT_EQ(request.priority(), v1::PRIORITY_BATCH);
  const v1::Sampling& s = request.sampling();
  EXPECT_FLOAT_EQ(s.temperature(), 0.5f);
  EXPECT_EQ(s.top_k(), 3);
  EXPECT_FLOAT_EQ(s.top_p(), 0.9f);
  EXPECT_FLOAT_EQ(s.min_p(), 0.1f);
  EXPECT_FLOAT_EQ(s.repeat_penalty(), 1.25f);
  EXPECT_EQ(s.seed(), 18446744073709551615u);
  EXPECT_EQ(s.stop_size(), 2);
  EXPECT_TRUE(s.ignore_eos());
}

TEST(RunVerb, LeavesUnsetSamplingToTheFilesDefaults) {
  FakeDaemon daemon([](const v1::ClientFrame&, int) { return Story({"a"}); });
  RunAgainst(daemon, {"Hi", "--raw"});
  const v1::GenerateRequest request = daemon.received().at(0).generate();
  EXPECT_EQ(request.prompt(), "Hi");
  EXPECT_EQ(request.sampling().ByteSizeLong(), 0u);
}

TEST(RunVerb, ReadsThePromptFromStdinForADashOrWithoutPrompt) {
  FakeDaemon daemon([](const v1::ClientFrame&, int) { return Story({"a"}); });
  RunAgainst(daemon, {"-"}, "from stdin\n");
  RunAgainst(daemon, {}, "from stdin\n");
  RunAgainst(daemon, {"--raw"}, "from stdin\n");
  ASSERT_EQ(daemon.received().size(), 3u);
  EXPECT_EQ(daemon.received()[0].generate().messages().messages(0).content(), "from stdin");
  EXPECT_EQ(daemon.received()[1].generate().messages().messages(0).content(), "from stdin");
  EXPECT_EQ(daemon.received()[2].generate().prompt(), "from stdin\n");
}

TEST(RunVerb, EndOfFileInTheMiddleOfAStreamIsAFailure) {
  FakeDaemon::Answer answer = Story({"half"}, false);
  answer.hang_up = true;
  const Outcome outcome = RunWith(answer, {"x"});
  EXPECT_EQ(outcome.out, "half\n");
  EXPECT_EQ(outcome.exit_code, 7);
  EXPECT_NE(outcome.err.find("CONNECTION_LOST"), std::string::npos);
}

TEST(RunVerb, ItsOwnDeadlineWithTokensIsExitNine) {
  FakeDaemon::Answer answer = Story({"a"});
  answer.frames.back().mutable_done()->set_finish_reason(v1::FINISH_REASON_CANCELLED);
  EXPECT_EQ(RunWith(answer, {"x", "--timeout", "1s"}).exit_code, 9);
}

TEST(RunVerb, RefusesAPromptThatIsNotUtf8) {
  const Outcome outcome = RunWith(Story({"a"}), {"a\xff"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("byte 1 is not UTF-8"), std::string::npos);
}

TEST(Interrupt, CancelsSaysSoAndDiesOfTheSignal) {
  FakeDaemon daemon([](const v1::ClientFrame& frame, int) {
    if (frame.has_generate()) return Story({"a"}, false);
    FakeDaemon::Answer answer;
    answer.frames.emplace_back().set_request_id(frame.cancel().target_request_id());
    answer.frames.back().mutable_done()->set_finish_reason(v1::FINISH_REASON_CANCELLED);
    answer.frames.emplace_back().mutable_cancel()->set_found(true);
    return answer;
  });
  RunningBulkhead command({"--socket", daemon.socket(), "run", "demo", "x"});
  ASSERT_TRUE(command.WaitForOutput("a"));
  command.Signal(SIGINT);
  const Outcome outcome = command.Finish();
  EXPECT_EQ(outcome.signal, SIGINT);
  EXPECT_NE(outcome.err.find("cancelled"), std::string::npos) << outcome.err;
  EXPECT_TRUE(daemon.received().at(1).has_cancel());
}

TEST(Interrupt, ASecondOneLeavesAtOnce) {
  FakeDaemon daemon([](const v1::ClientFrame& frame, int) {
    return frame.has_generate() ? Story({"a"}, false) : FakeDaemon::Answer{};
  });
  RunningBulkhead command({"--socket", daemon.socket(), "run", "demo", "x"});
  ASSERT_TRUE(command.WaitForOutput("a"));
  command.Signal(SIGINT);
  ASSERT_TRUE(command.WaitForError("cancelling"));
  command.Signal(SIGINT);
  EXPECT_EQ(command.Finish().signal, SIGINT);
}

TEST(Interrupt, AReaderThatLeavesEndsItSilently) {
  FakeDaemon daemon([](const v1::ClientFrame& frame, int) {
    return frame.has_generate() ? Story({"first", "second"}, false) : FakeDaemon::Answer{};
  });
  RunningBulkhead command({"--socket", daemon.socket(), "run", "demo", "x"});
  command.CloseOutput();
  const Outcome outcome = command.Finish();
  EXPECT_EQ(outcome.signal, SIGPIPE);
  EXPECT_EQ(outcome.err, "");
}

}  // namespace
}  // namespace bulkhead
