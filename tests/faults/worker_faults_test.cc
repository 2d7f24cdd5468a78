// Each way in which a worker can go wrong, with real processes, seen from outside: one typed terminal, no process left,
// the resident list and this process's descriptors as before, and the next request served.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/faults/harness.h"

namespace bulkhead::supervisor::test {
namespace {

struct Fault {
  std::string name;
  Reason reason;
  std::string detail = {};  // part of the message
};

std::string NameOfFault(const testing::TestParamInfo<Fault>& info) { return info.param.name; }

class WorkerFault : public testing::TestWithParam<Fault> {
 protected:
  WorkerFault() : harness_(FAKE_WORKER) {
    // One good generation first, so that everything lazily made exists before descriptors are counted.
    const ModelSource good = harness_.Script("good");
    EXPECT_EQ(harness_.Finish(good, "count 3")->text, "0 1 2 ");
    bool released = false;
    harness_.offload().ReleaseModel("good", {}, [&](const absl::StatusOr<bool>& done) { released = *done; });
    EXPECT_TRUE(harness_.RunUntil([&] { return released; }));
  }

  void ExpectClean(const Recording& recording, const std::vector<pid_t>& pids, int descriptors) {
    EXPECT_EQ(recording.terminals, 1);
    EXPECT_FALSE(recording.after_terminal);
    EXPECT_TRUE(harness_.RunUntil([&] { return harness_.offload().ResidentModels().empty(); }));
    for (const pid_t pid : pids) EXPECT_FALSE(ProcessExists(pid));
    EXPECT_TRUE(harness_.RunUntil([&] { return DescriptorCount() <= descriptors; }, std::chrono::seconds(3)))
        << DescriptorCount() << " descriptors, " << descriptors << " before";
    EXPECT_EQ(harness_.offload().Budget().charged_bytes, 0u);
    EXPECT_TRUE(harness_.offload().Requests().empty());
  }

  Harness harness_;
};

class FaultInGeneration : public WorkerFault {};

TEST_P(FaultInGeneration, EndsWithOneTypedTerminalAndTheNextRequestIsServed) {
  const ModelSource model = harness_.Script("model");
  const int descriptors = DescriptorCount();
  const auto recording = harness_.Stream(model, GetParam().name + " 3");
  EXPECT_TRUE(harness_.RunUntil([&] { return recording->ids.size() == 3 || recording->ended(); }));
  const std::vector<pid_t> pids = harness_.Pids();
  EXPECT_TRUE(harness_.RunUntil([&] { return recording->ended(); }));
  EXPECT_EQ(NameOf(recording->error.reason), NameOf(GetParam().reason)) << recording->error.message;
  EXPECT_THAT(recording->error.message, testing::HasSubstr(GetParam().detail));
  EXPECT_EQ(recording->text, "0 1 2 ");
  EXPECT_GT(recording->error.death_id, 0u);
  ExpectClean(*recording, pids, descriptors);
  EXPECT_EQ(harness_.Finish(model, "count 4")->text, "0 1 2 3 ");
}

INSTANTIATE_TEST_SUITE_P(
    Faults, FaultInGeneration,
    testing::Values(Fault{"exit", Reason::kWorkerCrashed, "exited with code 3"},
                    Fault{"exit0", Reason::kWorkerCrashed, "without being told"},
                    Fault{"kill", Reason::kWorkerCrashed, "killed by signal 9"},
                    Fault{"abort", Reason::kWorkerCrashed, "killed by signal 6"},
                    Fault{"segv", Reason::kWorkerCrashed, "killed by signal 11"},
                    Fault{"sigsys", Reason::kWorkerSandboxViolation, "sandbox"},
                    Fault{"sigill", Reason::kCpuUnsupported, "CPU"},
                    Fault{"sigbus", Reason::kWorkerCrashed, "signal 7"},
                    Fault{"oom", Reason::kWorkerOom, "limit 4194304"},
                    Fault{"half_frame", Reason::kWorkerProtocolError}, Fault{"giant", Reason::kWorkerProtocolError},
                    Fault{"wrong_id", Reason::kWorkerProtocolError, "not running"},
                    Fault{"wrong_index", Reason::kWorkerProtocolError, "token 3"},
                    Fault{"failed_wrong_index", Reason::kWorkerProtocolError, "token 3"},
                    Fault{"close_socket", Reason::kWorkerProtocolError, "closed its control socket"},
                    Fault{"freeze", Reason::kWorkerStalled, "no progress in decode"},
                    Fault{"stop", Reason::kWorkerStalled, "no progress in decode"},
                    Fault{"grandchild", Reason::kWorkerCrashed, "exited with code 3"}),
    NameOfFault);

class FaultInLoad : public WorkerFault {};

TEST_P(FaultInLoad, EndsWithOneTypedTerminalAndTheNextRequestIsServed) {
  const ModelSource model = harness_.Script("model", GetParam().name);
  const int descriptors = DescriptorCount();
  const auto recording = harness_.Stream(model, "count 3");
  std::vector<pid_t> pids;
  EXPECT_TRUE(harness_.RunUntil([&] {
    if (pids.empty()) pids = harness_.Pids();
    return recording->ended();
  }));
  EXPECT_FALSE(pids.empty());
  EXPECT_EQ(NameOf(recording->error.reason), NameOf(GetParam().reason)) << recording->error.message;
  EXPECT_THAT(recording->error.message, testing::HasSubstr(GetParam().detail));
  EXPECT_FALSE(recording->Saw("started"));
  ExpectClean(*recording, pids, descriptors);
  EXPECT_EQ(harness_.Finish(model, "count 4")->text, "0 1 2 3 ");
}

INSTANTIATE_TEST_SUITE_P(Faults, FaultInLoad,
                         testing::Values(Fault{"before_hello", Reason::kWorkerCrashed, "exited with code 3 in hello"},
                                         Fault{"never_hello", Reason::kWorkerStalled, "no progress in hello"},
                                         Fault{"wrong_build", Reason::kWorkerBuildMismatch, "another"},
                                         Fault{"exit", Reason::kWorkerCrashed, "in load"},
                                         Fault{"kill", Reason::kWorkerCrashed, "signal 9 (Killed) in load"},
                                         Fault{"abort", Reason::kWorkerCrashed, "in load"},
                                         Fault{"segv", Reason::kWorkerCrashed, "in load"},
                                         Fault{"freeze", Reason::kWorkerStalled, "no progress in load"},
                                         Fault{"invalid", Reason::kModelInvalid, "as the script says"},
                                         Fault{"grandchild", Reason::kWorkerCrashed, "in load"}),
                         NameOfFault);

class FaultAfterTheEnd : public WorkerFault {};

// The request had its end before the worker went wrong: nothing may come after it.
TEST_P(FaultAfterTheEnd, KeepsTheOneTerminalAndKillsTheWorker) {
  const ModelSource model = harness_.Script("model");
  const int descriptors = DescriptorCount();
  const auto recording = harness_.Stream(model, GetParam().name + " 3");
  EXPECT_TRUE(harness_.RunUntil([&] { return recording->ended(); }));
  EXPECT_EQ(recording->done.finish_reason, v1::FINISH_REASON_STOP);
  EXPECT_TRUE(harness_.RunUntil([&] { return !harness_.offload().Deaths().empty(); }));
  EXPECT_EQ(harness_.offload().Deaths().back().reason(), static_cast<v1::Reason>(GetParam().reason));
  ExpectClean(*recording, {}, descriptors);
  EXPECT_EQ(harness_.Finish(model, "count 4")->text, "0 1 2 3 ");
}

INSTANTIATE_TEST_SUITE_P(Faults, FaultAfterTheEnd,
                         testing::Values(Fault{"two_terminals", Reason::kWorkerProtocolError},
                                         Fault{"after_terminal", Reason::kWorkerProtocolError},
                                         Fault{"done_then_exit", Reason::kWorkerCrashed}),
                         NameOfFault);

TEST_F(WorkerFault, AWorkerThatNeverAnswersIsStalledInPrefill) {
  const auto recording = harness_.Finish(harness_.Script("model"), "unanswered 3");
  EXPECT_EQ(recording->error.reason, Reason::kWorkerStalled);
  EXPECT_THAT(recording->error.message, testing::HasSubstr("no progress"));
}

TEST_F(WorkerFault, StartingTwiceIsAProtocolError) {
  EXPECT_EQ(harness_.Finish(harness_.Script("model"), "started_twice 3")->error.reason, Reason::kWorkerProtocolError);
}

TEST_F(WorkerFault, GarbageOnStdoutHarmsNobody) {
  EXPECT_EQ(harness_.Finish(harness_.Script("model"), "garbage 3")->text, "0 1 2 ");
}

TEST_F(WorkerFault, ASlowWorkerIsNotAStuckOne) {
  const auto recording = harness_.Finish(harness_.Script("model"), "drip 40");
  EXPECT_EQ(recording->done.finish_reason, v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(recording->ids.size(), 40u);
}

// What it does not read is bounded by the watchdog, not by our memory.
TEST_F(WorkerFault, AWorkerThatNeverReadsIsStalled) {
  const ModelSource model = harness_.Script("model");
  const auto first = harness_.Stream(model, "freeze 3");
  EXPECT_TRUE(harness_.RunUntil([&] { return first->ids.size() == 3; }));
  const auto second = harness_.Stream(model, std::string(4 << 20, 'x'));
  EXPECT_TRUE(harness_.RunUntil([&] { return first->ended() && second->ended(); }));
  EXPECT_EQ(first->error.reason, Reason::kWorkerStalled) << first->error.message;
  EXPECT_EQ(second->error.reason, Reason::kWorkerStalled) << second->error.message;
  EXPECT_EQ(first->error.death_id, second->error.death_id);
}

TEST_F(WorkerFault, TheLastWordsOnStderrAreInTheDeathRecord) {
  harness_.Finish(harness_.Script("model"), "abort 1");
  const std::vector<v1::Death> deaths = harness_.offload().Deaths();
  ASSERT_EQ(deaths.size(), 1u);
  EXPECT_THAT(deaths[0].stderr_tail(), testing::HasSubstr("last words"));
  EXPECT_EQ(deaths[0].phase(), "decode");
  EXPECT_EQ(deaths[0].signal(), 6);
  EXPECT_EQ(deaths[0].requests_in_flight(), 1u);
  EXPECT_FALSE(deaths[0].planned());
}

TEST_F(WorkerFault, AnotherModelsStreamIsUntouchedByACrash) {
  const ModelSource good = harness_.Script("good2");
  const auto other = harness_.Stream(good, "drip 20");
  EXPECT_TRUE(harness_.RunUntil([&] { return other->ids.size() >= 2; }));
  EXPECT_EQ(harness_.Finish(harness_.Script("model"), "segv 2")->error.reason, Reason::kWorkerCrashed);
  EXPECT_TRUE(harness_.RunUntil([&] { return other->ended(); }));
  EXPECT_EQ(other->ids.size(), 20u);
  EXPECT_EQ(other->done.finish_reason, v1::FINISH_REASON_LENGTH);
}

TEST_F(WorkerFault, AWorkerThatIgnoresSigtermIsKilled) {
  const ModelSource model = harness_.Script("model");
  const auto recording = harness_.Stream(model, "deaf 100000");
  const auto ignores = harness_.Stream(model, "ignore_term 100000");
  EXPECT_TRUE(harness_.RunUntil([&] { return !recording->ids.empty() && !ignores->ids.empty(); }));
  bool released = false;
  harness_.offload().ReleaseModel("model", {},
                                  [&](const absl::StatusOr<bool>& done) { released = done.ok() && *done; });
  EXPECT_TRUE(harness_.RunUntil([&] { return released; }));
  EXPECT_EQ(recording->error.reason, Reason::kModelReleased);
  EXPECT_TRUE(harness_.offload().ResidentModels().empty());
}

}  // namespace
}  // namespace bulkhead::supervisor::test
