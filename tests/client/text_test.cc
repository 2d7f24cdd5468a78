#include "client/cli/text.h"

#include <gtest/gtest.h>

#include "base/status.h"

namespace bulkhead::cli {
namespace {

TEST(Duration, TakesUnitsAndBareSeconds) {
  EXPECT_EQ(ParseMilliseconds("250ms").value(), 250u);
  EXPECT_EQ(ParseMilliseconds("30").value(), 30'000u);
  EXPECT_EQ(ParseMilliseconds("30s").value(), 30'000u);
  EXPECT_EQ(ParseMilliseconds("10m").value(), 600'000u);
  EXPECT_EQ(ParseMilliseconds("2h").value(), 7'200'000u);
  EXPECT_EQ(ParseMilliseconds("1d").value(), 86'400'000u);
}

TEST(Duration, RefusesWhatIsNone) {
  for (const char* text : {"", "m", "-1s", "1.5s", "1 s", "10x", "99999999999999999999s", "18446744073709551615d"}) {
    const auto parsed = ParseMilliseconds(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(ReasonOf(parsed.status()), Reason::kInvalidRequest);
  }
}

TEST(HumanSizes, KeepThreeFigures) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(1023), "1023 B");
  EXPECT_EQ(HumanBytes(1024), "1.0 KiB");
  EXPECT_EQ(HumanBytes(4'404'019), "4.2 MiB");
  EXPECT_EQ(HumanBytes((1 << 20) - 1), "1.0 MiB");
  EXPECT_EQ(HumanBytes(512ull << 30), "512 GiB");
}

TEST(HumanTimes, KeepTwoUnits) {
  EXPECT_EQ(HumanMilliseconds(350), "350 ms");
  EXPECT_EQ(HumanMilliseconds(12'900), "12 s");
  EXPECT_EQ(HumanMilliseconds(200'000), "3 m 20 s");
  EXPECT_EQ(HumanMilliseconds(7'500'000), "2 h 5 m");
  EXPECT_EQ(HumanMilliseconds(273'600'000), "3 d 4 h");
}

TEST(Utf8, FindsTheFirstByteThatIsNone) {
  EXPECT_EQ(FirstInvalidUtf8("a\xC3\xA9"), std::string::npos);
  EXPECT_EQ(FirstInvalidUtf8("a\xC3"), 1u);
  EXPECT_EQ(FirstInvalidUtf8("ab\xC0\x80"), 2u);
  EXPECT_EQ(FirstInvalidUtf8("\xF4\x90\x80\x80"), 0u);
}

TEST(Printable, LeavesNoControlCharacterThatMovesTheCursor) {
  EXPECT_EQ(Printable("a\nb\tc"), "a\nb\tc");
  EXPECT_EQ(Printable("\x1b[2J"), "\xEF\xBF\xBD[2J");
  EXPECT_EQ(Printable("\xC2\x9B"), "\xEF\xBF\xBD");
  EXPECT_EQ(Printable("caf\xC3\xA9"), "caf\xC3\xA9");
}

TEST(Table, PadsByCharactersNotBytes) {
  EXPECT_EQ(Table({"A", "N"}, {{"\xC3\xA9\xC3\xA9", "1"}, {"x", "22"}}, {1}), "A    N\n\xC3\xA9\xC3\xA9   1\nx   22\n");
}

}  // namespace
}  // namespace bulkhead::cli
