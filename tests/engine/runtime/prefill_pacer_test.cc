#include "engine/runtime/prefill_pacer.h"

#include <gtest/gtest.h>

namespace bulkhead::engine {
namespace {

using std::chrono::milliseconds;

// Forwards that take `row` a row, until the chunks settle; the longest one after the first.
Duration LongestChunk(PrefillPacer& pacer, Duration row, int forwards) {
  Duration longest{};
  for (int i = 0; i < forwards; ++i) {
    const uint32_t rows = pacer.Rows(false);
    pacer.Record(rows, row * rows);
    longest = std::max(longest, row * rows);
  }
  return longest;
}

TEST(PrefillPacer, ChunksGrowToTheLimitAndStayWithinIt) {
  PrefillPacer pacer(milliseconds(250), 0);
  EXPECT_LE(LongestChunk(pacer, milliseconds(2), 10), milliseconds(250));
  EXPECT_GE(pacer.Rows(false), 90u);
}

TEST(PrefillPacer, ShrinksAfterASlowForward) {
  PrefillPacer pacer(milliseconds(250), 0);
  LongestChunk(pacer, milliseconds(1), 10);
  pacer.Record(pacer.Rows(false), milliseconds(20) * pacer.Rows(false));
  EXPECT_LE(milliseconds(20) * pacer.Rows(false), milliseconds(250));
}

TEST(PrefillPacer, LeavesRoomForStreams) {
  PrefillPacer pacer(milliseconds(250), 0);
  LongestChunk(pacer, milliseconds(1), 10);
  EXPECT_LE(pacer.Rows(true), pacer.Rows(false) / 2);
}

TEST(PrefillPacer, NeverStopsMovingHoweverSlow) {
  PrefillPacer pacer(milliseconds(250), 0);
  pacer.Record(16, std::chrono::seconds(100));
  EXPECT_EQ(pacer.Rows(false), PrefillPacer::kSmallestChunk);
}

}  // namespace
}  // namespace bulkhead::engine
