#include "ipc/worker_abi.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace bulkhead::ipc {
namespace {

TEST(OutOfMemoryReport, IsReadBackFromTheMiddleOfAStderrTail) {
  std::array<char, 128> buffer;
  const std::string line(FormatOutOfMemory({UINT64_MAX, 12345, 0}, buffer));
  EXPECT_EQ(line.back(), '\n');
  const auto report = ParseOutOfMemory("earlier\n" + line + "later\n");
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->wanted_bytes, UINT64_MAX);
  EXPECT_EQ(report->in_use_bytes, 12345u);
  EXPECT_EQ(report->limit_bytes, 0u);
}

TEST(OutOfMemoryReport, TheLastLineCounts) {
  std::array<char, 128> one;
  std::array<char, 128> two;
  const std::string text =
      std::string(FormatOutOfMemory({1, 2, 3}, one)) + std::string(FormatOutOfMemory({4, 5, 6}, two));
  EXPECT_EQ(ParseOutOfMemory(text)->wanted_bytes, 4u);
}

TEST(OutOfMemoryReport, IsNotReadFromACutOrForeignLine) {
  std::array<char, 128> buffer;
  const std::string line(FormatOutOfMemory({1000, 2000, 3000}, buffer));
  EXPECT_FALSE(ParseOutOfMemory("").has_value());
  EXPECT_FALSE(ParseOutOfMemory(line.substr(1)).has_value());
  EXPECT_FALSE(ParseOutOfMemory(line.substr(0, line.find(" limit="))).has_value());
  EXPECT_FALSE(
      ParseOutOfMemory("bulkhead-worker: out of memory: wanted=99999999999999999999999 in_use=1 limit=1").has_value());
}

TEST(OutOfMemoryReport, NeverWritesBeyondItsBuffer) {
  std::array<char, 10> small;
  EXPECT_EQ(FormatOutOfMemory({1, 2, 3}, small).size(), 10u);
}

}  // namespace
}  // namespace bulkhead::ipc
