#include "supervisor/death_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <uv.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/sys.h"
#include "supervisor/peaks.h"

namespace bulkhead::supervisor {
namespace {

class DeathLogTest : public testing::Test {
 protected:
  DeathLogTest() {
    char name[] = "/tmp/bulkhead-deaths-XXXXXX";
    directory_ = mkdtemp(name);
    uv_loop_init(&loop_);
  }
  ~DeathLogTest() override {
    Run();
    EXPECT_EQ(uv_loop_close(&loop_), 0);
    std::filesystem::remove_all(directory_);
  }
  void Run() { uv_run(&loop_, UV_RUN_DEFAULT); }
  std::unique_ptr<DeathLog> Open() {
    return std::make_unique<DeathLog>(&loop_, directory_, [this](std::string text) { warnings_.push_back(text); });
  }
  static v1::Death Of(const std::string& model) {
    v1::Death death;
    death.set_model(model);
    return death;
  }

  uv_loop_t loop_ = {};
  std::string directory_;
  std::vector<std::string> warnings_;
};

TEST_F(DeathLogTest, KeepsRecordsAndNumbersOverARestart) {
  Open()->Add(Of("first"));
  Run();
  const auto log = Open();
  ASSERT_EQ(log->All().size(), 1u);
  EXPECT_EQ(log->All()[0].model(), "first");
  EXPECT_EQ(log->Add(Of("second")), 2u);
}

TEST_F(DeathLogTest, KeepsTheLastHundred) {
  const auto log = Open();
  for (int i = 0; i < 130; ++i) log->Add(Of(std::to_string(i)));
  Run();
  const auto again = Open()->All();
  ASSERT_EQ(again.size(), kMaxDeaths);
  EXPECT_EQ(again.front().model(), "30");
  EXPECT_EQ(again.back().death_id(), 130u);
}

TEST_F(DeathLogTest, SetsACorruptFileAsideWithAWarning) {
  std::ofstream(directory_ + "/deaths") << "not a row of frames";
  const auto log = Open();
  EXPECT_TRUE(log->All().empty());
  EXPECT_THAT(warnings_, testing::ElementsAre(testing::HasSubstr("set aside")));
  EXPECT_TRUE(std::filesystem::exists(directory_ + "/deaths.corrupt"));
  EXPECT_EQ(log->Add(Of("next")), 1u);
}

TEST_F(DeathLogTest, AFullDiskCostsHistoryNotService) {
  sys::SetFaultHook([](const char* call) { return std::strcmp(call, "Fsync") == 0 ? ENOSPC : 0; });
  const auto log = Open();
  log->Add(Of("one"));
  Run();
  log->Add(Of("two"));
  Run();
  sys::SetFaultHook(nullptr);
  EXPECT_EQ(log->All().size(), 2u);
  EXPECT_THAT(warnings_, testing::ElementsAre(testing::HasSubstr("No space left")));
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/deaths"));
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/deaths.tmp"));
}

TEST(Peaks, SurviveBeingWrittenAndRead) {
  admission::LearnedPeaks::Row row;
  row.file = {1, 2, UINT64_MAX, -4};
  row.shape = {512, 3};
  row.private_bytes = UINT64_MAX - 1;
  row.oom_retries = 2;
  const auto rows = ParsePeaks(FormatPeaks(std::vector{row, row}));
  ASSERT_TRUE(rows.ok());
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[1].file, row.file);
  EXPECT_EQ((*rows)[1].shape, row.shape);
  EXPECT_EQ((*rows)[1].private_bytes, row.private_bytes);
}

TEST(Peaks, NameTheFirstBadLine) {
  EXPECT_THAT(Message(ParsePeaks("1 2 3 4 5 6 7 8\n1 2 x\n").status()), testing::HasSubstr("line 2"));
}

}  // namespace
}  // namespace bulkhead::supervisor
