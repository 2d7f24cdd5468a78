#include "admission/verdict.h"

#include <gtest/gtest.h>

namespace bulkhead::admission {
namespace {

TEST(Verdict, NamesAreThoseOfTheReasons) {
  EXPECT_EQ(NameOf(Verdict::kAllowed), "ALLOWED");
  for (size_t i = 1; i < kVerdictCount; ++i) {
    const auto verdict = static_cast<Verdict>(i);
    EXPECT_EQ(ReasonFromName(NameOf(verdict)), ReasonFor(verdict));
    EXPECT_EQ(InfoOf(ReasonFor(verdict)).exit_code, ExitCode::kRefused) << NameOf(verdict);
  }
}

TEST(Verdict, ThreeOfThemWait) {
  EXPECT_TRUE(Waits(Verdict::kWaitingForMemory));
  EXPECT_TRUE(Waits(Verdict::kInsufficientLiveMemory));
  EXPECT_TRUE(Waits(Verdict::kPendingTeardown));
  EXPECT_FALSE(Waits(Verdict::kAllowed));
  EXPECT_FALSE(Waits(Verdict::kQueueFull));
}

TEST(Refusal, BecomesAStatusThatCarriesItsReason) {
  const absl::Status status = ToStatus({.reason = Reason::kQueueFull, .message = "model m: 3 requests wait"});
  EXPECT_EQ(ReasonOf(status), Reason::kQueueFull);
  EXPECT_EQ(Message(status), "model m: 3 requests wait");
}

}  // namespace
}  // namespace bulkhead::admission
