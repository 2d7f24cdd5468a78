// The machine stands still under a stream: suspended, stopped by a debugger, frozen with its container, starved. Nobody
// is killed for time in which nobody could move.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/faults/harness.h"

namespace bulkhead::supervisor::test {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

// The kernel's clocks, pushed forward by the test.
class PushedClock final : public Clock {
 public:
  [[nodiscard]] Duration Monotonic() const override { return SystemClock().Monotonic() + stood_still; }
  [[nodiscard]] Duration Boottime() const override { return SystemClock().Boottime() + stood_still + suspended; }
  [[nodiscard]] Duration Wall() const override { return SystemClock().Wall() + stood_still + suspended; }

  Duration suspended{};    // CLOCK_MONOTONIC stops
  Duration stood_still{};  // it does not, but nobody runs
};

class MachinePauses : public testing::Test {
 protected:
  MachinePauses() : harness_(FAKE_WORKER, QuickSettings(), &clock_) {}

  std::shared_ptr<Recording> StartDripping() {
    auto recording = harness_.Stream(harness_.Script("model"), "drip 30");
    EXPECT_TRUE(harness_.RunUntil([&] { return recording->ids.size() >= 3; }));
    return recording;
  }
  void ExpectWhole(const Recording& recording) {
    EXPECT_TRUE(harness_.RunUntil([&] { return recording.ended(); }));
    EXPECT_EQ(recording.ids.size(), 30u);
    EXPECT_EQ(recording.done.finish_reason, v1::FINISH_REASON_LENGTH) << recording.error.message;
    EXPECT_TRUE(harness_.offload().Deaths().empty());
  }

  PushedClock clock_;
  Harness harness_;
};

TEST_F(MachinePauses, ASuspendedMachineGoesOnWhereItWas) {
  const auto recording = StartDripping();
  clock_.suspended = hours(10);
  ExpectWhole(*recording);
}

TEST_F(MachinePauses, AfterAStandstillEveryWorkerHasItsWholeLimitAgain) {
  const auto recording = StartDripping();
  clock_.stood_still = hours(1);
  ExpectWhole(*recording);
}

TEST_F(MachinePauses, AWorkerThatStaysStuckAfterwardsIsStillStalled) {
  const auto recording = harness_.Stream(harness_.Script("model"), "unanswered 1");
  EXPECT_TRUE(harness_.RunUntil([&] {
    const auto requests = harness_.offload().Requests();
    return !requests.empty() && requests.front().state == "PREFILL";
  }));
  clock_.stood_still = hours(1);
  EXPECT_TRUE(harness_.RunUntil([&] { return recording->ended(); }, seconds(20)));
  EXPECT_EQ(recording->error.reason, Reason::kWorkerStalled) << recording->error.message;
}

TEST_F(MachinePauses, AnIdleWorkerIsUsedAgainAfterASuspend) {
  const ModelSource model = harness_.Script("model");
  EXPECT_EQ(harness_.Finish(model, "count 2")->text, "0 1 ");
  const std::vector<pid_t> before = harness_.Pids();
  clock_.suspended = hours(10);
  EXPECT_EQ(harness_.Finish(model, "count 3")->text, "0 1 2 ");
  EXPECT_EQ(harness_.Pids(), before);
}

}  // namespace
}  // namespace bulkhead::supervisor::test
