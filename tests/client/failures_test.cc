// How the `bulkhead` program tells what went wrong: exit codes by the reason table, error events, hints, usage.
#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>

#include "base/reason.h"
#include "tests/client/command.h"
#include "tests/client/fake_daemon.h"

namespace bulkhead {
namespace {

using nlohmann::json;

TEST(Failures, EveryReasonHasItsExitCodeAndItsErrorEvent) {
  std::atomic<v1::Reason> current = v1::REASON_UNSPECIFIED;  // read on the fake daemon's thread
  FakeDaemon daemon([&](const v1::ClientFrame&, int) { return ReplyError(current, "why not"); });
  for (const ReasonInfo& info : AllReasons()) {
    current = static_cast<v1::Reason>(info.reason);
    const Outcome outcome = RunBulkhead({"--socket", daemon.socket(), "--json", "run", "demo", "x"});
    ASSERT_EQ(outcome.exit_code, static_cast<int>(info.exit_code)) << info.name;
    ASSERT_EQ(outcome.lines().size(), 1u) << outcome.out;
    const json event = json::parse(outcome.lines()[0]);
    EXPECT_EQ(event["event"], "error");
    EXPECT_EQ(event["reason"], info.name);
    EXPECT_EQ(event["message"], "why not");
    EXPECT_EQ(event["code"], static_cast<int>(info.code));
    EXPECT_EQ(event["retryable"], info.retryable);
    EXPECT_NE(outcome.err.find(info.name), std::string::npos);
  }
}

TEST(Failures, ARefusalNamesTheNextCommandToTry) {
  FakeDaemon daemon([](const v1::ClientFrame&, int) { return ReplyError(v1::REASON_BREAKER_OPEN, "died too often"); });
  const Outcome outcome = RunBulkhead({"--socket", daemon.socket(), "run", "demo", "x"});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_NE(outcome.err.find("bulkhead unblock demo"), std::string::npos) << outcome.err;
}

TEST(Failures, TheDaemonsOwnHintGoesFirst) {
  FakeDaemon daemon([](const v1::ClientFrame&, int) {
    FakeDaemon::Answer answer = ReplyError(v1::REASON_MODEL_NOT_FOUND, "no such model");
    answer.frames[0].mutable_error()->set_hint("bulkhead show other");
    answer.frames[0].mutable_error()->set_retry_after_ms(2000);
    return answer;
  });
  const Outcome outcome = RunBulkhead({"--socket", daemon.socket(), "run", "demo", "x"});
  EXPECT_NE(outcome.err.find("try: bulkhead show other"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("again in 2 s"), std::string::npos) << outcome.err;
}

TEST(Failures, WithoutADaemonEveryVerbIsExitSeven) {
  const std::vector<std::vector<std::string>> commands = {
      {"run", "m", "p"},  {"ps"},          {"models"},       {"show", "m"},
      {"preflight", "m"}, {"load", "m"},   {"release", "m"}, {"release-idle"},
      {"terminate", "i"}, {"cancel", "i"}, {"unblock", "m"}, {"tokenize", "m", "t"},
      {"deaths"},         {"policy"},      {"doctor"}};
  for (std::vector<std::string> command : commands) {
    command.insert(command.begin(), {"--socket", "/nonexistent/s", "--json"});
    const Outcome outcome = RunBulkhead(command);
    EXPECT_EQ(outcome.exit_code, 7) << command[3];
    EXPECT_EQ(json::parse(outcome.out)["reason"], "DAEMON_UNREACHABLE") << command[3];
  }
}

TEST(Failures, UsageErrorsAreExitTwoAndJsonWhereAskedFor) {
  const std::vector<std::vector<std::string>> commands = {{},
                                                          {"run"},
                                                          {"bogus"},
                                                          {"release"},
                                                          {"release", "--all", "m"},
                                                          {"release", "--idle=x"},
                                                          {"run", "m", "p", "--timeout", "soon"},
                                                          {"run", "m", "p", "--priority", "top"},
                                                          {"ps", "--requests", "--memory"},
                                                          {"run", "m", "p", "--raw", "--system", "s"},
                                                          {"run", "m", "p", "--top-p", "2"}};
  for (std::vector<std::string> command : commands) {
    command.emplace_back("--json");
    const Outcome outcome = RunBulkhead(command);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    EXPECT_EQ(json::parse(outcome.out)["reason"], "INVALID_REQUEST") << outcome.out;
  }
}

TEST(Help, EveryVerbHasItAndExitsZero) {
  for (const char* verb : {"run", "ps", "models", "show", "preflight", "load", "release", "release-idle", "terminate",
                           "cancel", "unblock", "tokenize", "deaths", "policy", "doctor", "version"}) {
    const Outcome outcome = RunBulkhead({verb, "--help"});
    EXPECT_EQ(outcome.exit_code, 0) << verb;
    EXPECT_NE(outcome.out.find("Usage:"), std::string::npos) << verb;
  }
}

}  // namespace
}  // namespace bulkhead
