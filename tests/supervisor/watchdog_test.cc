#include "supervisor/watchdog.h"

#include <gtest/gtest.h>

namespace bulkhead::supervisor {
namespace {

using std::chrono::seconds;

TEST(Watchdog, HasALimitForEachPhaseThatMustMove) {
  const SupervisionSettings::Watchdog limits;
  Watchdog watchdog;
  watchdog.Enter(WorkerPhase::kHello, seconds(0));
  EXPECT_EQ(watchdog.Deadline(limits), limits.hello);
  watchdog.Enter(WorkerPhase::kLoad, seconds(0));
  EXPECT_EQ(watchdog.Deadline(limits), limits.load);
  watchdog.Enter(WorkerPhase::kPrefill, seconds(0));
  EXPECT_EQ(watchdog.Deadline(limits), limits.prefill);
  watchdog.Enter(WorkerPhase::kDecode, seconds(0));
  EXPECT_EQ(watchdog.Deadline(limits), limits.token);
  watchdog.Enter(WorkerPhase::kIdle, seconds(0));
  EXPECT_FALSE(watchdog.Deadline(limits).has_value());
}

TEST(Watchdog, AHeartbeatWithoutProgressIsNotMovement) {
  Watchdog watchdog;
  watchdog.Enter(WorkerPhase::kPrefill, seconds(1));
  watchdog.Progress(7, seconds(2));
  watchdog.Progress(7, seconds(50));
  EXPECT_EQ(watchdog.last_move(), seconds(2));
  watchdog.Progress(8, seconds(60));
  EXPECT_EQ(watchdog.last_move(), seconds(60));
}

TEST(Watchdog, RepeatedLoadProgressBesideHeartbeatsIsNotMovement) {
  Watchdog watchdog;
  watchdog.Enter(WorkerPhase::kLoad, seconds(1));
  for (int i = 2; i < 10; ++i) {
    watchdog.Progress(1, seconds(i));
    watchdog.LoadProgress(5, seconds(i));
  }
  EXPECT_EQ(watchdog.last_move(), seconds(2));
}

TEST(Watchdog, GoingFromPrefillToDecodeIsNotMovementByItself) {
  Watchdog watchdog;
  watchdog.Enter(WorkerPhase::kPrefill, seconds(1));
  watchdog.Enter(WorkerPhase::kDecode, seconds(5));
  watchdog.Enter(WorkerPhase::kPrefill, seconds(9));
  EXPECT_EQ(watchdog.last_move(), seconds(1));
}

}  // namespace
}  // namespace bulkhead::supervisor
