#include "supervisor/breaker.h"

#include <gtest/gtest.h>

namespace bulkhead::supervisor {
namespace {

using std::chrono::seconds;

SupervisionSettings::Breaker Settings() {
  SupervisionSettings::Breaker settings;
  settings.deaths = 3;
  settings.window = seconds(60);
  settings.backoff = seconds(10);
  settings.max_backoff = seconds(35);
  return settings;
}

TEST(Breaker, OpensAtTheGivenNumberOfDeathsInTheWindow) {
  Breaker breaker;
  EXPECT_FALSE(breaker.Death(seconds(1), Settings()));
  EXPECT_FALSE(breaker.Death(seconds(2), Settings()));
  EXPECT_TRUE(breaker.Death(seconds(3), Settings()));
  EXPECT_EQ(breaker.until(), seconds(13));
}

TEST(Breaker, ForgetsDeathsOlderThanTheWindow) {
  Breaker breaker;
  breaker.Death(seconds(1), Settings());
  breaker.Death(seconds(2), Settings());
  EXPECT_FALSE(breaker.Death(seconds(70), Settings()));
}

TEST(Breaker, DoublesTheBackoffWithEachFailedTrialUpToTheMaximum) {
  Breaker breaker;
  for (int i = 0; i < 3; ++i) breaker.Death(seconds(i), Settings());
  Duration now = breaker.until();
  for (const int expected : {20, 35, 35}) {
    breaker.LetTrialThrough();
    EXPECT_TRUE(breaker.Death(now, Settings()));
    EXPECT_EQ(breaker.until() - now, seconds(expected));
    now = breaker.until();
  }
}

TEST(Breaker, ClosesAfterAHealthyTrialAndOnlyThen) {
  Breaker breaker;
  for (int i = 0; i < 3; ++i) breaker.Death(seconds(i), Settings());
  breaker.Healthy();
  EXPECT_EQ(breaker.state(), Breaker::State::kOpen);
  breaker.LetTrialThrough();
  breaker.Healthy();
  EXPECT_EQ(breaker.state(), Breaker::State::kClosed);
  EXPECT_FALSE(breaker.Death(seconds(20), Settings()));
}

TEST(Breaker, ResetClosesItAndSaysWhetherItWasOpen) {
  Breaker breaker;
  EXPECT_FALSE(breaker.Reset());
  for (int i = 0; i < 3; ++i) breaker.Death(seconds(i), Settings());
  EXPECT_TRUE(breaker.Reset());
  EXPECT_EQ(breaker.state(), Breaker::State::kClosed);
}

}  // namespace
}  // namespace bulkhead::supervisor
