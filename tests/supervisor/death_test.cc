#include "supervisor/death.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace bulkhead::supervisor {
namespace {

DeathEvidence Signalled(int signal) {
  DeathEvidence evidence;
  evidence.exit = {-1, signal};
  evidence.phase = WorkerPhase::kDecode;
  return evidence;
}

DeathEvidence Exited(int code) {
  DeathEvidence evidence;
  evidence.exit = {code, 0};
  evidence.phase = WorkerPhase::kLoad;
  return evidence;
}

TEST(Classify, SignalsThatSayWhy) {
  EXPECT_EQ(Classify(Signalled(SIGSYS)).reason, Reason::kWorkerSandboxViolation);
  EXPECT_EQ(Classify(Signalled(SIGILL)).reason, Reason::kCpuUnsupported);
  EXPECT_EQ(Classify(Signalled(SIGSEGV)).reason, Reason::kWorkerCrashed);
  EXPECT_EQ(Classify(Signalled(SIGABRT)).reason, Reason::kWorkerCrashed);
}

TEST(Classify, SigbusIsTheFilesFaultOnlyIfTheFileChanged) {
  DeathEvidence evidence = Signalled(SIGBUS);
  EXPECT_EQ(Classify(evidence).reason, Reason::kWorkerCrashed);
  evidence.file_changed = true;
  EXPECT_EQ(Classify(evidence).reason, Reason::kModelFileChanged);
}

TEST(Classify, AForeignSigkillIsOutOfMemoryOnlyIfTheKernelCountedOne) {
  DeathEvidence evidence = Signalled(SIGKILL);
  EXPECT_EQ(Classify(evidence).reason, Reason::kWorkerCrashed);
  evidence.oom_kills_rose = true;
  EXPECT_EQ(Classify(evidence).reason, Reason::kWorkerOom);
}

TEST(Classify, AKillByTheLimitOfItsCgroupHasTheLeafsNumbers) {
  DeathEvidence evidence = Signalled(SIGKILL);
  evidence.oom_kills_rose = true;
  evidence.leaf_oom = {4096, 300, 400};
  const DeathVerdict verdict = Classify(evidence);
  EXPECT_EQ(verdict.reason, Reason::kWorkerOom);
  EXPECT_EQ(verdict.oom.in_use_bytes, 300u);
  EXPECT_NE(verdict.detail.find("limit of its cgroup (wanted 4096, in use 300, limit 400 bytes)"), std::string::npos)
      << verdict.detail;
}

TEST(Classify, AForeignKillAfterTheLimitWasOnlyTouchedIsNoOutOfMemory) {
  DeathEvidence evidence = Signalled(SIGKILL);
  evidence.leaf_oom = {4096, 300, 400};
  EXPECT_EQ(Classify(evidence).reason, Reason::kWorkerCrashed);
}

TEST(Classify, TheWorkersOwnOutOfMemoryExitCarriesItsNumbers) {
  DeathEvidence evidence = Exited(ipc::kWorkerExitOutOfMemory);
  char buffer[128];
  const std::string line(ipc::FormatOutOfMemory({300, 200, 400}, buffer));
  evidence.stderr_tail = line;
  const DeathVerdict verdict = Classify(evidence);
  EXPECT_EQ(verdict.reason, Reason::kWorkerOom);
  EXPECT_EQ(verdict.oom.wanted_bytes, 300u);
  EXPECT_THAT(verdict.detail, testing::HasSubstr("limit 400"));
}

TEST(Classify, ExitCodesOfTheWorkerAbi) {
  EXPECT_EQ(Classify(Exited(ipc::kWorkerExitProtocol)).reason, Reason::kWorkerProtocolError);
  EXPECT_EQ(Classify(Exited(ipc::kWorkerExitFence)).reason, Reason::kSpawnFailed);
  EXPECT_EQ(Classify(Exited(0)).reason, Reason::kWorkerCrashed);
  EXPECT_THAT(Classify(Exited(9)).detail, testing::HasSubstr("exited with code 9 in load"));
}

TEST(Classify, AKillOfOursHasTheReasonWeHad) {
  DeathEvidence evidence = Signalled(SIGKILL);
  evidence.signalled_by_us = true;
  const std::pair<StopCause, Reason> cases[] = {
      {StopCause::kRelease, Reason::kModelReleased},        {StopCause::kIdle, Reason::kModelReleased},
      {StopCause::kEvict, Reason::kModelReleased},          {StopCause::kTerminate, Reason::kWorkerTerminated},
      {StopCause::kShutdown, Reason::kShuttingDown},        {StopCause::kStall, Reason::kWorkerStalled},
      {StopCause::kProtocol, Reason::kWorkerProtocolError}, {StopCause::kBuildMismatch, Reason::kWorkerBuildMismatch},
  };
  for (const auto& [cause, reason] : cases) {
    evidence.cause = cause;
    EXPECT_EQ(Classify(evidence).reason, reason) << NameOf(cause);
    EXPECT_EQ(Classify(evidence).planned, IsPlanned(cause)) << NameOf(cause);
  }
}

TEST(Classify, AWorkerThatCrashedBeforeOurSignalArrivedCrashed) {
  DeathEvidence evidence = Signalled(SIGSEGV);
  evidence.cause = StopCause::kRelease;
  evidence.signalled_by_us = true;
  EXPECT_EQ(Classify(evidence).reason, Reason::kWorkerCrashed);
  EXPECT_FALSE(Classify(evidence).planned);
}

}  // namespace
}  // namespace bulkhead::supervisor
