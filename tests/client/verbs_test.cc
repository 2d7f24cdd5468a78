// The verbs other than `run` against a scripted daemon: request sent, JSON, human text, exit code.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/client/command.h"
#include "tests/client/fake_daemon.h"

namespace bulkhead {
namespace {

using nlohmann::json;

struct Exchange {
  v1::ClientFrame request;
  Outcome outcome;
};

// One command against a daemon that answers `frame`.
Exchange Ask(std::vector<std::string> arguments, const v1::ServerFrame& frame) {
  FakeDaemon daemon([&](const v1::ClientFrame&, int) { return Reply(frame); });
  arguments.insert(arguments.begin(), {"--socket", daemon.socket()});
  Exchange exchange;
  exchange.outcome = RunBulkhead(arguments);
  if (!daemon.received().empty()) exchange.request = daemon.received()[0];
  return exchange;
}

v1::ServerFrame PsFrame() {
  v1::ServerFrame frame;
  v1::ResidentModel* model = frame.mutable_ps()->add_models();
  model->set_model("demo");
  model->set_allocation_id("demo#a.1");
  model->set_state("IDLE");
  model->set_pid(77);
  model->set_charge_bytes(5 << 20);
  model->set_measured_bytes(3 << 20);
  model->set_idle_ms(12'000);
  frame.mutable_ps()->mutable_budget()->set_profile("everyday");
  frame.mutable_ps()->mutable_budget()->set_ceiling_bytes(10ull << 30);
  frame.mutable_ps()->mutable_budget()->set_charged_bytes(5 << 20);
  return frame;
}

TEST(Ps, PrintsModelsAndBudgetWithBytesAsIntegers) {
  const json reply = json::parse(Ask({"ps", "--json"}, PsFrame()).outcome.out);
  EXPECT_EQ(reply["models"][0]["model"], "demo");
  EXPECT_EQ(reply["models"][0]["pid"], 77);
  EXPECT_EQ(reply["models"][0]["charge_bytes"], 5 << 20);
  EXPECT_EQ(reply["models"][0]["in_flight"], 0);
  EXPECT_EQ(reply["models"][0]["pinned"], false);
  EXPECT_EQ(reply["budget"]["ceiling_bytes"], 10ull << 30);
  EXPECT_EQ(reply["budget"]["charged_bytes"], 5 << 20);
  EXPECT_EQ(reply["requests"], json::array());
}

TEST(Ps, ShowsHumanSizesOtherwise) {
  const Outcome outcome = Ask({"ps"}, PsFrame()).outcome;
  EXPECT_NE(outcome.out.find("5.0 MiB"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("idle 12 s"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find("pages"), std::string::npos) << "the engine has not said anything yet: " << outcome.out;
  EXPECT_EQ(outcome.exit_code, 0);
}

TEST(Ps, SaysWhatAnEngineHoldsAndSaved) {
  v1::ServerFrame frame = PsFrame();
  frame.mutable_ps()->mutable_models(0)->set_heartbeat_ms(1500);
  v1::EngineSnapshot& engine = *frame.mutable_ps()->mutable_models(0)->mutable_engine();
  engine.set_active_decode(2);
  engine.set_kv_pages_total(512);
  engine.set_kv_pages_free(400);
  engine.set_kv_pages_idle(100);
  engine.set_prefix_hits(7);
  engine.set_prefix_saved_tokens(1234);
  engine.set_healthy(true);
  const Outcome outcome = Ask({"ps"}, frame).outcome;
  EXPECT_NE(outcome.out.find("demo#a.1: 2 sequences, pages 12 used + 100 kept of 512; prompts: 7 hits, 0 misses, 1234 "
                             "tokens saved, 0 pages evicted; heard "),
            std::string::npos)
      << outcome.out;
  engine.set_healthy(false);
  EXPECT_NE(Ask({"ps"}, frame).outcome.out.find("; stuck, heard "), std::string::npos);
}

TEST(Ps, AsksForRequestsOrMemory) {
  EXPECT_TRUE(Ask({"ps", "--requests"}, PsFrame()).request.ps().requests());
  EXPECT_TRUE(Ask({"ps", "--memory"}, PsFrame()).request.ps().memory());
}

TEST(Release, PrintsWhatIsGone) {
  v1::ServerFrame frame;
  frame.mutable_release()->add_released("demo");
  const Exchange exchange = Ask({"release", "demo", "other", "--json"}, frame);
  EXPECT_EQ(exchange.outcome.out, "{\"released\":[\"demo\"],\"not_resident\":[],\"unconfirmed\":[]}\n");
  EXPECT_EQ(exchange.request.release().models_size(), 2);
  EXPECT_FALSE(exchange.request.release().has_idle_for_ms());
}

TEST(Release, IdleTakesADurationOrTenMinutes) {
  v1::ServerFrame frame;
  frame.mutable_release();
  EXPECT_EQ(Ask({"release", "--idle"}, frame).request.release().idle_for_ms(), 600'000u);
  EXPECT_EQ(Ask({"release", "--idle=5s"}, frame).request.release().idle_for_ms(), 5'000u);
  EXPECT_EQ(Ask({"release-idle"}, frame).request.release().idle_for_ms(), 600'000u);
  EXPECT_EQ(Ask({"release-idle", "--idle-for", "1m"}, frame).request.release().idle_for_ms(), 60'000u);
  EXPECT_TRUE(Ask({"release", "--all"}, frame).request.release().all());
}

TEST(Release, UnconfirmedIsAFailure) {
  v1::ServerFrame frame;
  frame.mutable_release()->add_unconfirmed("demo");
  EXPECT_EQ(Ask({"release", "demo"}, frame).outcome.exit_code, 1);
}

TEST(Terminate, ExitsByItsAcknowledgement) {
  const std::vector<std::pair<v1::TerminateReply::Ack, int>> rows = {{v1::TerminateReply::CONFIRMED, 0},
                                                                     {v1::TerminateReply::ALREADY_TERMINAL, 0},
                                                                     {v1::TerminateReply::NOT_RUNNING, 4},
                                                                     {v1::TerminateReply::UNCONFIRMED, 1}};
  for (const auto& [ack, code] : rows) {
    v1::ServerFrame frame;
    frame.mutable_terminate()->set_ack(ack);
    frame.mutable_terminate()->set_allocation_id("demo#a.1");
    const Exchange exchange = Ask({"terminate", "inf-1", "--json"}, frame);
    EXPECT_EQ(exchange.outcome.exit_code, code);
    EXPECT_EQ(json::parse(exchange.outcome.out)["ack"], v1::TerminateReply::Ack_Name(ack));
    EXPECT_EQ(json::parse(exchange.outcome.out)["allocation_id"], "demo#a.1");
    EXPECT_EQ(exchange.request.terminate().inference_id(), "inf-1");
  }
}

TEST(Cancel, OfNothingIsNotFound) {
  v1::ServerFrame frame;
  frame.mutable_cancel()->set_found(false);
  EXPECT_EQ(Ask({"cancel", "inf-1"}, frame).outcome.exit_code, 4);
  frame.mutable_cancel()->set_found(true);
  EXPECT_EQ(Ask({"cancel", "inf-1", "--json"}, frame).outcome.out, "{\"found\":true}\n");
}

TEST(Preflight, ShowsTheArithmeticAndExitsByItsVerdict) {
  v1::ServerFrame frame;
  frame.mutable_preflight()->set_verdict("ALLOWED");
  v1::PreflightLine* line = frame.mutable_preflight()->add_lines();
  line->set_what("weights");
  line->set_bytes(1234);
  const Exchange allowed = Ask({"preflight", "demo", "--context", "64", "--sequences", "2", "--json"}, frame);
  EXPECT_EQ(allowed.outcome.exit_code, 0);
  EXPECT_EQ(json::parse(allowed.outcome.out)["verdict"], "ALLOWED");
  EXPECT_EQ(json::parse(allowed.outcome.out)["lines"][0]["bytes"], 1234);
  EXPECT_EQ(allowed.request.preflight().context(), 64u);
  EXPECT_EQ(allowed.request.preflight().sequences(), 2u);
  frame.mutable_preflight()->set_verdict("EXCEEDS_CEILING");
  EXPECT_EQ(Ask({"preflight", "demo"}, frame).outcome.exit_code, 3);
}

TEST(Load, SendsItsShapeAndSaysWhatItGot) {
  v1::ServerFrame frame;
  frame.mutable_load()->set_model("demo");
  frame.mutable_load()->set_allocation_id("demo#a.1");
  const Exchange exchange = Ask({"load", "demo", "--pin", "--context", "64", "--sequences", "2", "--json"}, frame);
  EXPECT_TRUE(exchange.request.load().pin());
  EXPECT_EQ(exchange.request.load().context(), 64u);
  EXPECT_EQ(json::parse(exchange.outcome.out)["allocation_id"], "demo#a.1");
}

TEST(Tokenize, PrintsIds) {
  v1::ServerFrame frame;
  frame.mutable_tokenize()->add_ids(1);
  frame.mutable_tokenize()->add_ids(22);
  EXPECT_EQ(Ask({"tokenize", "demo", "hi", "--json"}, frame).outcome.out, "{\"ids\":[1,22]}\n");
  EXPECT_EQ(Ask({"tokenize", "demo", "hi"}, frame).outcome.out, "1 22\n");
}

TEST(Models, ListsProblems) {
  v1::ServerFrame frame;
  frame.mutable_models()->add_models()->set_model("demo");
  frame.mutable_models()->add_problems("two files are named x");
  EXPECT_NE(Ask({"models"}, frame).outcome.err.find("two files are named x"), std::string::npos);
  EXPECT_EQ(json::parse(Ask({"models", "--json"}, frame).outcome.out)["models"][0]["model"], "demo");
}

TEST(Deaths, ShowsLastWordsWithoutTheirControlCharacters) {
  v1::ServerFrame frame;
  v1::Death* death = frame.mutable_deaths()->add_deaths();
  death->set_allocation_id("demo#a.1");
  death->set_reason(v1::REASON_WORKER_CRASHED);
  death->set_signal(9);
  death->set_stderr_tail("boom \x1b[2J\xff");
  const Exchange human = Ask({"deaths", "--last", "3"}, frame);
  EXPECT_EQ(human.request.deaths().last(), 3u);
  EXPECT_NE(human.outcome.out.find("signal 9"), std::string::npos);
  EXPECT_EQ(human.outcome.out.find('\x1b'), std::string::npos);
  const json reply = json::parse(Ask({"deaths", "--json"}, frame).outcome.out);
  EXPECT_EQ(reply["deaths"][0]["reason"], "WORKER_CRASHED");
}

TEST(Show, PrintsTheManifest) {
  v1::ServerFrame frame;
  frame.mutable_show()->set_model("demo");
  frame.mutable_show()->mutable_manifest()->set_architecture("qwen3");
  EXPECT_NE(Ask({"show", "demo"}, frame).outcome.out.find("qwen3"), std::string::npos);
  EXPECT_EQ(json::parse(Ask({"show", "demo", "--json"}, frame).outcome.out)["manifest"]["architecture"], "qwen3");
}

TEST(Doctor, AFailedFindingIsAFailure) {
  v1::ServerFrame frame;
  v1::DoctorFinding* finding = frame.mutable_doctor()->add_findings();
  finding->set_what("landlock");
  finding->set_status("ok");
  EXPECT_EQ(Ask({"doctor"}, frame).outcome.exit_code, 0);
  finding->set_status("fail");
  EXPECT_EQ(Ask({"doctor", "--json"}, frame).outcome.exit_code, 1);
}

TEST(Policy, ReadsAndSets) {
  v1::ServerFrame frame;
  frame.mutable_policy()->set_generation(3);
  const Exchange exchange = Ask({"policy", "set", "profile=custom", "--json"}, frame);
  EXPECT_EQ(exchange.request.policy().set().at("profile"), "custom");
  EXPECT_EQ(json::parse(exchange.outcome.out)["generation"], 3);
  EXPECT_EQ(Ask({"policy", "set", "profile"}, frame).outcome.exit_code, 2);
}

TEST(Unblock, SaysWhetherItWasBlocked) {
  v1::ServerFrame frame;
  frame.mutable_unblock()->set_was_blocked(true);
  EXPECT_EQ(Ask({"unblock", "demo", "--json"}, frame).outcome.out, "{\"was_blocked\":true}\n");
}

TEST(Version, NamesBothBuildsAndNeedsNoDaemon) {
  v1::ServerFrame frame;
  frame.mutable_models();
  const json both = json::parse(Ask({"version", "--json"}, frame).outcome.out);
  EXPECT_EQ(both["daemon_build"], "fake");
  EXPECT_EQ(both["numerics"], 7);
  const Outcome alone = RunBulkhead({"--socket", "/nonexistent/s", "version", "--json"});
  EXPECT_EQ(alone.exit_code, 0);
  EXPECT_EQ(json::parse(alone.out)["daemon_build"], "");
}

}  // namespace
}  // namespace bulkhead
