// A request whose worker dies goes on in another one: nothing lost, nothing doubled, one `resumed` a death, and a
// request that kills its workers is found among those that do not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>

#include "base/sys.h"
#include "tests/faults/harness.h"

namespace bulkhead::supervisor::test {
namespace {

using testing::HasSubstr;

class Replay : public testing::Test {
 protected:
  Replay() : Replay(QuickSettings()) {}
  explicit Replay(SupervisionSettings settings) : harness_(FAKE_WORKER, std::move(settings)) {}

  static std::string Count(int tokens) {
    std::string text;
    for (int i = 0; i < tokens; ++i) text += std::to_string(i) + " ";
    return text;
  }
  bool Until(const Recording& recording, size_t tokens) {
    return harness_.RunUntil([&] { return recording.ids.size() >= tokens || recording.ended(); });
  }
  void KillWorker(int signal = SIGKILL) {
    const std::vector<pid_t> pids = harness_.Pids();
    ASSERT_FALSE(pids.empty());
    for (const pid_t pid : pids) sys::KillGroup(pid, signal);
  }
  static int Resumes(const Recording& recording) {
    return static_cast<int>(std::count_if(recording.events.begin(), recording.events.end(),
                                          [](const std::string& event) { return event.starts_with("resumed"); }));
  }
  void ExpectWhole(const Recording& recording, int tokens) {
    EXPECT_TRUE(harness_.RunUntil([&] { return recording.ended(); }));
    EXPECT_FALSE(recording.failed()) << recording.error.message;
    EXPECT_EQ(recording.text, Count(tokens));
    EXPECT_EQ(recording.done.usage.completion_tokens(), static_cast<uint32_t>(tokens));
    EXPECT_EQ(recording.terminals, 1);
  }
  void ExpectNothingLeft() {
    bool released = false;
    harness_.offload().ReleaseModel("m", {}, [&](const absl::StatusOr<bool>&) { released = true; });
    EXPECT_TRUE(harness_.RunUntil([&] { return released; }));
    EXPECT_EQ(harness_.offload().Budget().charged_bytes, 0u);
    EXPECT_TRUE(harness_.offload().Requests().empty());
  }

  Harness harness_;
};

class ReplayBySignal : public Replay, public testing::WithParamInterface<int> {};

TEST_P(ReplayBySignal, TheStreamGoesOnWithTheNextTokenAndSaysSoOnce) {
  const ModelSource model = harness_.Script("m");
  const auto recording = harness_.Resuming(model, "drip 40");
  ASSERT_TRUE(Until(*recording, 5));
  KillWorker(GetParam());
  ExpectWhole(*recording, 40);
  EXPECT_TRUE(recording->Saw("resumed 1 WORKER_CRASHED"));
  EXPECT_EQ(Resumes(*recording), 1);
  EXPECT_EQ(std::count(recording->events.begin(), recording->events.end(), "started"), 1);
  ExpectNothingLeft();
}

INSTANTIATE_TEST_SUITE_P(Signals, ReplayBySignal, testing::Values(SIGKILL, SIGSEGV, SIGABRT),
                         [](const auto& info) { return "signal" + std::to_string(info.param); });

TEST_F(Replay, ManyKillsFromOutsideAreNobodysFault) {
  const auto recording = harness_.Resuming(harness_.Script("m"), "drip 24");
  for (size_t kills = 1; kills <= 6; ++kills) {
    ASSERT_TRUE(Until(*recording, 3 * kills));
    KillWorker();
  }
  ExpectWhole(*recording, 24);
  EXPECT_EQ(Resumes(*recording), 6);
}

TEST_F(Replay, AKillWhileTheWorkerLoadsIsSurvivedToo) {
  const ModelSource model = harness_.Script("m", "kill");
  const auto recording = harness_.Resuming(model, "count 5");
  ExpectWhole(*recording, 5);
  EXPECT_EQ(Resumes(*recording), 0) << "nothing had begun";
}

TEST_F(Replay, ARequestThatKillsItsWorkersEndsAfterTwo) {
  const auto recording = harness_.Resuming(harness_.Script("m"), "segv 3");
  EXPECT_TRUE(harness_.RunUntil([&] { return recording->ended(); }));
  EXPECT_EQ(NameOf(recording->error.reason), "WORKER_CRASHED");
  EXPECT_THAT(recording->error.message, HasSubstr("suspect"));
  EXPECT_EQ(recording->text, Count(3));
  EXPECT_EQ(Resumes(*recording), 1);
  ExpectNothingLeft();
}

TEST_F(Replay, FailMeansFail) {
  const auto recording = harness_.Stream(harness_.Script("m"), "drip 40");
  ASSERT_TRUE(Until(*recording, 3));
  KillWorker();
  EXPECT_TRUE(harness_.RunUntil([&] { return recording->ended(); }));
  EXPECT_EQ(NameOf(recording->error.reason), "WORKER_CRASHED");
  EXPECT_EQ(Resumes(*recording), 0);
}

TEST_F(Replay, AStalledWorkersRequestGoesOn) {
  const auto recording = harness_.Resuming(harness_.Script("m"), "drip 30");
  ASSERT_TRUE(Until(*recording, 4));
  KillWorker(SIGSTOP);
  ExpectWhole(*recording, 30);
  EXPECT_TRUE(recording->Saw("resumed 1 WORKER_STALLED"));
}

TEST_F(Replay, ReleaseWithForceEndsTheWorkerNotItsRequests) {
  const ModelSource model = harness_.Script("m");
  const auto recording = harness_.Resuming(model, "drip 30");
  ASSERT_TRUE(Until(*recording, 4));
  std::optional<absl::StatusOr<bool>> released;
  harness_.offload().ReleaseModel("m", {.force = true}, [&](absl::StatusOr<bool> done) { released = std::move(done); });
  ExpectWhole(*recording, 30);
  ASSERT_TRUE(released.has_value());
  EXPECT_TRUE(**released);
  EXPECT_TRUE(recording->Saw("resumed 1 MODEL_RELEASED"));
}

TEST_F(Replay, TerminateEndsItsTargetAndOthersInTheProcessGoOn) {
  const ModelSource model = harness_.Script("m");
  std::string id;
  const auto target = harness_.Resuming(model, "drip 400", &id);
  const auto innocent = harness_.Resuming(model, "drip 30");
  ASSERT_TRUE(Until(*target, 3));
  ASSERT_TRUE(Until(*innocent, 3));
  bool confirmed = false;
  harness_.offload().TerminateInference(id, [&](const InferenceTerminationAck& ack) {
    confirmed = ack.kind == InferenceTerminationAck::Kind::kConfirmed;
  });
  ExpectWhole(*innocent, 30);
  EXPECT_TRUE(confirmed);
  EXPECT_EQ(NameOf(target->error.reason), "WORKER_TERMINATED");
  EXPECT_TRUE(innocent->Saw("resumed 1 WORKER_TERMINATED"));
}

TEST_F(Replay, CancelWhileItWaitsForItsNextWorkerIsACancelledEnd) {
  std::string id;
  const auto recording = harness_.Resuming(harness_.Script("m"), "drip 100", &id);
  ASSERT_TRUE(Until(*recording, 3));
  KillWorker();
  ASSERT_TRUE(harness_.RunUntil([&] { return recording->Saw("resumed"); }));
  EXPECT_TRUE(harness_.offload().Cancel(id, CancelCause::kOwner));
  EXPECT_TRUE(harness_.RunUntil([&] { return recording->ended(); }));
  EXPECT_EQ(recording->done.finish_reason, v1::FINISH_REASON_CANCELLED);
  EXPECT_EQ(recording->done.usage.completion_tokens(), recording->ids.size());
}

// The poison's place among the eight decides when it is found, so each place is tried that the sequences allow.
class Poison : public Replay, public testing::WithParamInterface<int> {
 protected:
  static SupervisionSettings EightAtOnce() {
    SupervisionSettings settings = QuickSettings();
    settings.model.sequences = 8;
    return settings;
  }
  Poison() : Replay(EightAtOnce()) {}
};

TEST_P(Poison, IsFoundAmongSevenInnocentWhoFinish) {
  const ModelSource model = harness_.Script("m");
  std::vector<std::shared_ptr<Recording>> innocent;
  std::shared_ptr<Recording> poison;
  for (int i = 0; i < 8; ++i) {
    if (i == GetParam()) {
      poison = harness_.Resuming(model, "segv 9");
    } else {
      innocent.push_back(harness_.Resuming(model, "drip " + std::to_string(12 + 5 * i)));
    }
  }
  for (size_t i = 0; i < innocent.size(); ++i) {
    const int at = static_cast<int>(i) < GetParam() ? static_cast<int>(i) : static_cast<int>(i) + 1;
    ExpectWhole(*innocent[i], 12 + 5 * at);
    EXPECT_GE(Resumes(*innocent[i]), 1);
  }
  EXPECT_TRUE(harness_.RunUntil([&] { return poison->ended(); }));
  EXPECT_EQ(NameOf(poison->error.reason), "WORKER_CRASHED");
  EXPECT_THAT(poison->error.message, HasSubstr("suspect"));
  EXPECT_EQ(poison->text, Count(9));
  ExpectNothingLeft();
}

INSTANTIATE_TEST_SUITE_P(Places, Poison, testing::Values(0, 3, 7));

class BreakerAndReplay : public Replay {
 protected:
  static SupervisionSettings Strict() {
    SupervisionSettings settings = QuickSettings();
    settings.breaker.deaths = 1;
    settings.breaker.backoff = settings.breaker.max_backoff = std::chrono::milliseconds(400);
    return settings;
  }
  BreakerAndReplay() : Replay(Strict()) {}
};

TEST_F(BreakerAndReplay, AStreamThatHadBegunWaitsForTheBreakersTrial) {
  const auto recording = harness_.Resuming(harness_.Script("m"), "drip 30");
  ASSERT_TRUE(Until(*recording, 4));
  KillWorker();
  ExpectWhole(*recording, 30);
  EXPECT_EQ(Resumes(*recording), 1);
}

}  // namespace
}  // namespace bulkhead::supervisor::test
