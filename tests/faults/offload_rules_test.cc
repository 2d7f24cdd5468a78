// The offload contract's rules (DESIGN section 3) and every row of CONTRACT part A, over real processes of the scripted
// worker.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>

#include "base/sys.h"
#include "tests/faults/harness.h"

namespace bulkhead::supervisor::test {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using Ack = InferenceTerminationAck;

class OffloadRules : public testing::Test {
 protected:
  explicit OffloadRules(SupervisionSettings settings = QuickSettings()) : harness_(FAKE_WORKER, std::move(settings)) {}

  WorkerOffload& offload() { return harness_.offload(); }

  absl::StatusOr<bool> Release(const std::string& model, ReleaseOptions options = {}) {
    std::optional<absl::StatusOr<bool>> answer;
    offload().ReleaseModel(model, options, [&](absl::StatusOr<bool> done) { answer = std::move(done); });
    EXPECT_FALSE(answer.has_value()) << "called back inside the call";
    EXPECT_TRUE(harness_.RunUntil([&] { return answer.has_value(); }));
    return *answer;
  }
  Ack Terminate(const std::string& id) {
    std::optional<Ack> answer;
    offload().TerminateInference(id, [&](const Ack& ack) { answer = ack; });
    EXPECT_FALSE(answer.has_value()) << "called back inside the call";
    EXPECT_TRUE(harness_.RunUntil([&] { return answer.has_value(); }));
    return *answer;
  }
  std::vector<std::string> ReleaseIdle(Duration idle_for) {
    std::optional<ReleaseIdleResult> answer;
    offload().ReleaseIdleModels(idle_for, [&](ReleaseIdleResult result) { answer = std::move(result); });
    EXPECT_TRUE(harness_.RunUntil([&] { return answer.has_value(); }));
    return answer->released;
  }
  absl::StatusOr<LoadResult> Load(const ModelSource& model, bool pin = false) {
    std::optional<absl::StatusOr<LoadResult>> answer;
    LoadSpec spec;
    spec.model = model;
    spec.pin = pin;
    offload().Load(spec, nullptr, [&](absl::StatusOr<LoadResult> result) { answer = std::move(result); });
    EXPECT_TRUE(harness_.RunUntil([&] { return answer.has_value(); }));
    return *answer;
  }
  // A stream that goes on until it is stopped, with its first token seen.
  std::shared_ptr<Recording> Endless(const ModelSource& model, std::string* id, const std::string& kind = "count") {
    auto recording = harness_.Stream(model, kind + " 400", id, [](OffloadRequest&) {});
    EXPECT_TRUE(harness_.RunUntil([&] { return !recording->ids.empty() || recording->ended(); }));
    return recording;
  }

  // Stops the process and waits until the kernel says that it stands still: a cancel sent after that is not heard.
  bool Stopped(pid_t pid) {
    sys::KillGroup(pid, SIGSTOP);
    return harness_.RunUntil([&] {
      std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
      std::string text;
      std::getline(stat, text);
      return text.find(") T ") != std::string::npos;
    });
  }

  Harness harness_;
};

TEST_F(OffloadRules, GenerateGivesTheWholeOfWhatStreamGives) {
  const ModelSource model = harness_.Script("m");
  std::optional<LocalOffloadResult> whole;
  OffloadRequest request;
  request.model = model;
  request.input = "count 5";
  request.sampling.set_seed(42);
  offload().Generate(request, [&](auto result) { whole = std::get<LocalOffloadResult>(std::move(result)); });
  EXPECT_TRUE(harness_.RunUntil([&] { return whole.has_value(); }));
  const auto streamed = harness_.Finish(model, "count 5");
  EXPECT_EQ(whole->text, streamed->text);
  EXPECT_EQ(whole->tokens.size(), streamed->ids.size());
  EXPECT_EQ(whole->allocation_id, streamed->allocation_id);
  EXPECT_EQ(whole->done.finish_reason, streamed->done.finish_reason);
  EXPECT_TRUE(whole->weights_resident);
  EXPECT_EQ(whole->seed, 42u);
  EXPECT_EQ(whole->done.usage.completion_tokens(), 5u);
}

TEST_F(OffloadRules, AStreamsEventsComeInOrderWithOneTerminal) {
  const auto recording = harness_.Finish(harness_.Script("m"), "count 2");
  EXPECT_THAT(recording->events,
              ElementsAre("loading spawn", "loading weights", "loading weights", "loading weights", "loading weights",
                          "loading weights", "started", "delta 0 0 ", "delta 1 1 ", "done FINISH_REASON_LENGTH"));
  EXPECT_NE(recording->seed, 0u);
}

TEST_F(OffloadRules, NoWorkRunsWithoutATicket) {
  auto recording = std::make_shared<Recording>();
  OffloadRequest request;
  request.model = harness_.Script("m");
  request.input = "count 2";
  offload().StreamAdmitted(request, LocalWorkerAdmission(), std::make_unique<RecordingSink>(recording));
  EXPECT_TRUE(harness_.RunUntil([&] { return recording->ended(); }));
  EXPECT_THAT(recording->error.message, HasSubstr("no work without admission"));
  EXPECT_TRUE(offload().ResidentModels().empty());
}

TEST_F(OffloadRules, ADroppedTicketGivesBackTheLeaseButNotTheChargeOfALiveProcess) {
  LocalWorkerAdmission ticket;
  OffloadRequest request;
  request.model = harness_.Script("m");
  request.input = "count 2";
  auto recording = std::make_shared<Recording>();
  offload().AcquireAdmission(
      request, std::make_unique<RecordingSink>(recording),
      [&](OffloadRequest, LocalWorkerAdmission got, std::unique_ptr<StreamSink>) { ticket = std::move(got); });
  EXPECT_TRUE(harness_.RunUntil([&] { return ticket.valid(); }));
  EXPECT_EQ(ticket.allocation_id(), offload().ResidentAllocationId("m"));
  EXPECT_EQ(offload().ResidentModels().at(0).state, "BUSY");
  ticket = LocalWorkerAdmission();
  EXPECT_EQ(offload().ResidentModels().at(0).state, "IDLE");
  EXPECT_GT(offload().Budget().charged_bytes, 0u);
  EXPECT_TRUE(offload().Requests().empty());
}

TEST_F(OffloadRules, ReleaseIsFalseWhereNothingIsResident) { EXPECT_FALSE(*Release("nothing")); }

TEST_F(OffloadRules, ReleaseIsTrueOnlyAfterReapSettlementAndRetirement) {
  const auto recording = harness_.Finish(harness_.Script("m"), "count 2");
  const pid_t pid = offload().ResidentModels().at(0).pid;
  bool answered = false;
  offload().ReleaseModel("m", {}, [&](const absl::StatusOr<bool>& done) {
    EXPECT_TRUE(*done);
    EXPECT_FALSE(ProcessExists(pid));
    EXPECT_EQ(offload().Budget().charged_bytes, 0u);
    EXPECT_TRUE(offload().ResidentModels().empty());
    EXPECT_FALSE(offload().ResidentAllocationId("m").has_value());
    answered = true;
  });
  EXPECT_TRUE(harness_.RunUntil([&] { return answered; }));
  const std::string& id = recording->allocation_id;
  EXPECT_LT(harness_.Logged(id, "TEARDOWN"), harness_.Logged(id, "REAPED"));
  EXPECT_LT(harness_.Logged(id, "REAPED"), harness_.Logged(id, "SETTLED"));
  EXPECT_LT(harness_.Logged(id, "SETTLED"), harness_.Logged(id, "FREED"));
  EXPECT_NE(harness_.Logged(id, "FREED"), std::string::npos);
}

TEST_F(OffloadRules, EverybodyWhoReleasesAtOnceGetsTheSameAnswer) {
  harness_.Finish(harness_.Script("m"), "count 2");
  std::vector<bool> released;
  std::vector<std::string> idle;
  bool idle_done = false;
  for (int i = 0; i < 2; ++i) {
    offload().ReleaseModel("m", {}, [&](const absl::StatusOr<bool>& done) { released.push_back(*done); });
  }
  offload().ReleaseIdleModels(Duration(0), [&](const ReleaseIdleResult& result) {
    idle = result.released;
    idle_done = true;
  });
  EXPECT_TRUE(harness_.RunUntil([&] { return released.size() == 2 && idle_done; }));
  EXPECT_THAT(released, ElementsAre(true, true));
  EXPECT_TRUE(idle.empty()) << "it was no longer idle but on its way out";
}

TEST_F(OffloadRules, ReleaseOfABusyModelDrainsAndNewRequestsGetTheNextAllocation) {
  const ModelSource model = harness_.Script("m");
  std::string id;
  const auto running = harness_.Stream(model, "count 30", &id);
  EXPECT_TRUE(harness_.RunUntil([&] { return !running->ids.empty(); }));
  bool released = false;
  offload().ReleaseModel("m", {}, [&](const absl::StatusOr<bool>& done) { released = *done; });
  const auto next = harness_.Stream(model, "count 2");
  EXPECT_TRUE(harness_.RunUntil([&] { return released && next->ended(); }));
  EXPECT_EQ(running->done.finish_reason, v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(next->text, "0 1 ");
  EXPECT_NE(next->allocation_id, running->allocation_id);
}

TEST_F(OffloadRules, ReleaseWithForceEndsRequestsWithModelReleased) {
  std::string id;
  const auto running = Endless(harness_.Script("m"), &id, "drip");
  EXPECT_TRUE(*Release("m", {true, {}}));
  EXPECT_TRUE(running->ended());
  EXPECT_EQ(running->error.reason, Reason::kModelReleased);
  EXPECT_TRUE(offload().Deaths().empty()) << "a planned end is no death";
}

TEST_F(OffloadRules, TerminateOfNothingKnownOrEndedSaysSo) {
  EXPECT_EQ(Terminate("inf-0").kind, Ack::Kind::kNotRunning);
  std::string id;
  const auto done = harness_.Stream(harness_.Script("m"), "count 1", &id);
  EXPECT_TRUE(harness_.RunUntil([&] { return done->ended(); }));
  EXPECT_EQ(Terminate(id).kind, Ack::Kind::kAlreadyTerminal);
  EXPECT_EQ(offload().ResidentModels().size(), 1u);
}

TEST_F(OffloadRules, TerminateKillsExactlyThatProcessAndConfirmsAfterItsEnd) {
  const ModelSource model = harness_.Script("m");
  std::string id;
  std::string innocent_id;
  std::string other_id;
  const auto target = Endless(model, &id, "drip");
  const auto innocent = Endless(model, &innocent_id, "drip");
  const auto other = Endless(harness_.Script("other"), &other_id, "drip");
  const pid_t pid = offload().ResidentModels().at(0).pid;
  const Ack ack = Terminate(id);
  EXPECT_EQ(ack.kind, Ack::Kind::kConfirmed);
  EXPECT_EQ(ack.allocation_id, target->allocation_id);
  EXPECT_THAT(ack.how, HasSubstr("signal 9"));
  EXPECT_FALSE(ProcessExists(pid));
  EXPECT_EQ(target->error.reason, Reason::kWorkerTerminated);
  EXPECT_EQ(innocent->error.reason, Reason::kWorkerTerminated);
  EXPECT_FALSE(other->ended());
  EXPECT_EQ(Terminate(id).kind, Ack::Kind::kConfirmed) << "evidence once taken is kept";
}

TEST_F(OffloadRules, TerminateOfAWaitingRequestDequeuesItAndTheLoadGoesOn) {
  const ModelSource model = harness_.Script("m");
  std::string id;
  const auto waiting = harness_.Stream(model, "count 3", &id);
  const Ack ack = Terminate(id);
  EXPECT_EQ(ack.kind, Ack::Kind::kConfirmed);
  EXPECT_EQ(ack.how, "dequeued");
  EXPECT_EQ(waiting->error.reason, Reason::kWorkerTerminated);
  EXPECT_EQ(harness_.Finish(model, "count 2")->text, "0 1 ");
}

TEST_F(OffloadRules, OthersInAProcessAreNamedByTheirUid) {
  const ModelSource model = harness_.Script("m");
  std::string id;
  const auto mine = harness_.Stream(model, "drip 300", &id, [](OffloadRequest& request) { request.uid = 1; });
  const auto theirs = harness_.Stream(model, "drip 300", nullptr, [](OffloadRequest& request) { request.uid = 2; });
  EXPECT_TRUE(harness_.RunUntil([&] { return !mine->ids.empty() && !theirs->ids.empty(); }));
  EXPECT_THAT(offload().OthersInProcessOf(id), ElementsAre(2));
}

TEST_F(OffloadRules, CancelEndsTheStreamAndTheProcessLives) {
  const ModelSource model = harness_.Script("m");
  std::string id;
  const auto recording = Endless(model, &id);
  EXPECT_TRUE(offload().Cancel(id, CancelCause::kOwner));
  EXPECT_FALSE(recording->ended());
  EXPECT_TRUE(harness_.RunUntil([&] { return recording->ended(); }));
  EXPECT_EQ(recording->done.finish_reason, v1::FINISH_REASON_CANCELLED);
  EXPECT_EQ(harness_.Finish(model, "count 1")->allocation_id, recording->allocation_id);
  EXPECT_FALSE(offload().Cancel(id, CancelCause::kOwner));
}

TEST_F(OffloadRules, CancelBySomebodyElseIsAnError) {
  std::string id;
  const auto recording = Endless(harness_.Script("m"), &id);
  offload().Cancel(id, CancelCause::kOther);
  EXPECT_TRUE(harness_.RunUntil([&] { return recording->ended(); }));
  EXPECT_EQ(recording->error.reason, Reason::kCancelled);
}

TEST_F(OffloadRules, CancelEscalatesToAKillOnlyWhereProgressHasStopped) {
  std::string slow_id;
  const auto slow = Endless(harness_.Script("slow"), &slow_id, "deaf");
  std::string stuck_id;
  const auto stuck = Endless(harness_.Script("stuck"), &stuck_id, "drip");
  for (const ResidentModel& model : offload().ResidentModels()) {
    if (model.model != "stuck") continue;
    EXPECT_TRUE(Stopped(model.pid));
  }
  offload().Cancel(slow_id, CancelCause::kOwner);
  offload().Cancel(stuck_id, CancelCause::kOwner);
  EXPECT_TRUE(harness_.RunUntil([&] { return stuck->ended(); }));
  EXPECT_EQ(stuck->done.finish_reason, v1::FINISH_REASON_CANCELLED);
  ASSERT_EQ(offload().Deaths().size(), 1u);
  EXPECT_EQ(offload().Deaths()[0].reason(), v1::REASON_WORKER_STALLED);
  EXPECT_TRUE(offload().ResidentAllocationId("slow").has_value()) << "slow is not stuck";
}

TEST_F(OffloadRules, AllocationIdsAreNeverReusedAlsoNotAfterARestart) {
  const std::string first = harness_.Finish(harness_.Script("m"), "count 1")->allocation_id;
  EXPECT_TRUE(*Release("m"));
  const std::string second = harness_.Finish(harness_.Script("m"), "count 1")->allocation_id;
  harness_.Restart();
  const std::string third = harness_.Finish(harness_.Script("m"), "count 1")->allocation_id;
  EXPECT_THAT(first, HasSubstr("m#"));
  EXPECT_EQ((std::set<std::string>{first, second, third}).size(), 3u);
}

TEST_F(OffloadRules, ReleaseIdleTakesOnlyTheIdleOnes) {
  std::string id;
  harness_.Finish(harness_.Script("idle"), "count 1");
  const auto busy = Endless(harness_.Script("busy"), &id, "drip");
  EXPECT_TRUE(Load(harness_.Script("pinned"), true).ok());
  EXPECT_THAT(ReleaseIdle(std::chrono::hours(1)), ElementsAre()) << "not idle for that long";
  EXPECT_THAT(ReleaseIdle(Duration(0)), ElementsAre("idle"));
  EXPECT_TRUE(offload().ResidentAllocationId("busy").has_value());
  EXPECT_TRUE(offload().ResidentAllocationId("pinned").has_value());
}

TEST_F(OffloadRules, APolicyMovesOnlyForwardAndAShrinkReleasesIdleWorkersNotBusyOnes) {
  std::string id;
  harness_.Finish(harness_.Script("idle"), "count 1");
  const auto busy = Endless(harness_.Script("busy"), &id, "drip");
  harness_.policy = {5, "custom", 1 << 20};
  offload().RefreshResourcePolicy(0);
  EXPECT_NE(offload().Budget().profile, "custom") << "an older generation changes nothing";
  offload().RefreshResourcePolicy(5);
  EXPECT_TRUE(harness_.RunUntil([&] { return !offload().ResidentAllocationId("idle").has_value(); }));
  EXPECT_EQ(offload().Budget().policy_generation, 5u);
  EXPECT_EQ(offload().Budget().ceiling_bytes, 1u << 20);
  EXPECT_FALSE(busy->ended());
}

TEST_F(OffloadRules, AnUnconfirmedKillKeepsTheChargeAndIsConfirmedLater) {
  std::string id;
  const auto recording = Endless(harness_.Script("m"), &id, "drip");
  harness_.launcher().deaf = true;
  const Ack ack = Terminate(id);
  EXPECT_EQ(ack.kind, Ack::Kind::kUnconfirmed);
  EXPECT_THAT(ack.why, HasSubstr("still charged"));
  EXPECT_EQ(offload().ResidentModels().at(0).state, "STUCK");
  EXPECT_GT(offload().Budget().charged_bytes, 0u);
  const auto released = Release("m");
  EXPECT_EQ(ReasonOf(released.status()), Reason::kPendingTeardown);
  harness_.launcher().deaf = false;
  EXPECT_TRUE(harness_.RunUntil([&] { return offload().ResidentModels().empty(); }));
  EXPECT_EQ(Terminate(id).kind, Ack::Kind::kConfirmed);
  EXPECT_NE(harness_.Logged(id, "termination-confirmed"), std::string::npos);
  EXPECT_EQ(offload().Budget().charged_bytes, 0u);
}

TEST_F(OffloadRules, APausedStreamIsNotStuckButItsClientIsAfterAWhile) {
  const ModelSource model = harness_.Script("m");
  std::string id;
  const auto recording = Endless(model, &id);
  EXPECT_TRUE(offload().Pause(id, true));
  EXPECT_TRUE(harness_.RunUntil([&] { return recording->ended(); }));
  EXPECT_EQ(recording->error.reason, Reason::kClientStalled);
  EXPECT_TRUE(offload().Deaths().empty());
  std::string resumed_id;
  const auto resumed = Endless(model, &resumed_id);
  EXPECT_TRUE(offload().Pause(resumed_id, true));
  EXPECT_TRUE(offload().Pause(resumed_id, false));
  EXPECT_TRUE(harness_.RunUntil([&] { return resumed->ended(); }));
  EXPECT_EQ(resumed->ids.size(), 400u);
}

TEST_F(OffloadRules, ADeadlineWithTokensIsACancelledEndAndWithoutIsAnError) {
  const auto with = [](OffloadRequest& request) { request.deadline = milliseconds(400); };
  const auto some = harness_.Stream(harness_.Script("a"), "drip 300", nullptr, with);
  const auto none = harness_.Stream(harness_.Script("b"), "unanswered 1", nullptr, with);
  EXPECT_TRUE(harness_.RunUntil([&] { return some->ended() && none->ended(); }));
  EXPECT_EQ(some->done.finish_reason, v1::FINISH_REASON_CANCELLED);
  EXPECT_FALSE(some->ids.empty());
  EXPECT_EQ(none->error.reason, Reason::kDeadlineExceeded);
}

TEST_F(OffloadRules, ALoadThatRanOutOfMemoryIsTriedAgainWithWhatItWanted) {
  const auto recording = harness_.Finish(harness_.Script("m", "load_oom"), "count 2");
  EXPECT_EQ(recording->text, "0 1 ");
  EXPECT_GE(offload().ResidentModels().at(0).estimate_bytes, 10u << 20);
}

TEST_F(OffloadRules, ASpawnThatFailsNamesErrnoAndPath) {
  const ModelSource model = harness_.Script("m");
  EXPECT_EQ(harness_.Finish(model, "count 1")->text, "0 ");
  EXPECT_TRUE(*Release("m"));
  sys::SetFaultHook([](const char* call) { return std::strcmp(call, "PosixSpawn") == 0 ? EAGAIN : 0; });
  const auto recording = harness_.Finish(model, "count 1");
  sys::SetFaultHook(nullptr);
  EXPECT_EQ(recording->error.reason, Reason::kSpawnFailed);
  EXPECT_THAT(recording->error.message, testing::AllOf(HasSubstr("fake_worker"), HasSubstr("unavailable")));
  EXPECT_EQ(offload().Budget().charged_bytes, 0u);
  EXPECT_EQ(harness_.Finish(model, "count 1")->text, "0 ");
}

TEST_F(OffloadRules, LoadTokenizeInspectAndPreflightAnswer) {
  const ModelSource model = harness_.Script("m");
  const auto loaded = Load(model);
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->context, 512u);
  EXPECT_EQ(loaded->sequences, 4u);
  EXPECT_FALSE(loaded->already_resident);
  EXPECT_TRUE(Load(model)->already_resident);
  std::optional<absl::StatusOr<std::vector<int32_t>>> ids;
  std::optional<absl::StatusOr<v1::Manifest>> manifest;
  std::optional<absl::StatusOr<PreflightReport>> report;
  TokenizeSpec tokenize;
  tokenize.model = model;
  tokenize.text = "ab";
  offload().Tokenize(tokenize, [&](absl::StatusOr<std::vector<int32_t>> got) { ids = std::move(got); });
  offload().Inspect(model, [&](absl::StatusOr<v1::Manifest> got) { manifest = std::move(got); });
  LoadSpec spec;
  spec.model = model;
  offload().Preflight(spec, [&](absl::StatusOr<PreflightReport> got) { report = std::move(got); });
  EXPECT_TRUE(harness_.RunUntil([&] { return ids && manifest && report; }));
  EXPECT_THAT(**ids, ElementsAre('a', 'b'));
  EXPECT_EQ((**manifest).architecture(), "fake");
  EXPECT_EQ((**report).verdict, "ALLOWED");
  EXPECT_FALSE((**report).lines.empty());
}

TEST_F(OffloadRules, ShutdownAnswersEverythingAndLeavesNothing) {
  const ModelSource model = harness_.Script("m");
  std::string id;
  const auto running = Endless(model, &id, "drip");
  const auto starting = harness_.Stream(harness_.Script("n"), "count 3");
  const std::vector<pid_t> pids = harness_.Pids();
  bool stopped = false;
  offload().Shutdown(milliseconds(50), [&] { stopped = true; });
  const auto late = harness_.Stream(model, "count 1");
  EXPECT_TRUE(harness_.RunUntil([&] { return stopped; }));
  for (const auto& recording : {running, starting, late}) {
    EXPECT_EQ(recording->error.reason, Reason::kShuttingDown);
    EXPECT_EQ(recording->terminals, 1);
  }
  for (const pid_t pid : pids) EXPECT_FALSE(ProcessExists(pid));
  EXPECT_TRUE(offload().ResidentModels().empty());
}

TEST_F(OffloadRules, DeathRecordsOutliveARestart) {
  harness_.Finish(harness_.Script("m"), "segv 1");
  harness_.Restart();
  ASSERT_EQ(offload().Deaths().size(), 1u);
  EXPECT_EQ(offload().Deaths()[0].signal(), 11);
}

SupervisionSettings WithBreaker() {
  SupervisionSettings settings = QuickSettings();
  settings.breaker.deaths = 2;
  settings.breaker.backoff = milliseconds(400);
  settings.breaker.healthy = milliseconds(50);
  return settings;
}

class BreakerRules : public OffloadRules {
 protected:
  BreakerRules() : OffloadRules(WithBreaker()) {}
};

TEST_F(BreakerRules, DeathsOpenItAndUnblockClosesIt) {
  const ModelSource model = harness_.Script("m");
  harness_.Finish(model, "segv 1");
  harness_.Finish(model, "segv 1");
  EXPECT_TRUE(offload().Blocked("m"));
  const auto refused = harness_.Finish(model, "count 1");
  EXPECT_EQ(refused->error.reason, Reason::kBreakerOpen);
  EXPECT_GT(refused->error.retry_after_ms, 0u);
  EXPECT_TRUE(offload().Unblock("m"));
  EXPECT_EQ(harness_.Finish(model, "count 1")->text, "0 ");
}

TEST_F(BreakerRules, ATrialIsLetThroughAfterTheBackoffAndHealthyServiceClosesIt) {
  const ModelSource model = harness_.Script("m");
  harness_.Finish(model, "segv 1");
  harness_.Finish(model, "segv 1");
  EXPECT_TRUE(harness_.RunUntil([&] { return !offload().Blocked("m"); }));
  EXPECT_EQ(harness_.Finish(model, "drip 10")->ids.size(), 10u);
  // Closed: one more death does not open it, as it would during a trial.
  harness_.Finish(model, "segv 1");
  EXPECT_FALSE(offload().Blocked("m"));
}

TEST_F(BreakerRules, PlannedKillsDoNotCount) {
  const ModelSource model = harness_.Script("m");
  for (int i = 0; i < 4; ++i) {
    std::string id;
    const auto recording = Endless(model, &id, "drip");
    EXPECT_EQ(Terminate(id).kind, Ack::Kind::kConfirmed);
  }
  EXPECT_FALSE(offload().Blocked("m"));
}

SupervisionSettings WithIdleRelease() {
  SupervisionSettings settings = QuickSettings();
  settings.idle_release = milliseconds(200);
  return settings;
}

TEST(IdleSweep, ReleasesWhatIsIdleForLongEnoughByItself) {
  Harness harness(FAKE_WORKER, WithIdleRelease());
  const auto recording = harness.Finish(harness.Script("m"), "count 1");
  EXPECT_EQ(harness.offload().ResidentModels().size(), 1u);
  EXPECT_TRUE(harness.RunUntil([&] { return harness.offload().ResidentModels().empty(); }));
  EXPECT_NE(harness.Logged(recording->allocation_id, "FREED"), std::string::npos);
}

}  // namespace
}  // namespace bulkhead::supervisor::test
