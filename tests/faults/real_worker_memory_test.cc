// The real worker's memory, on a random model of some 40 MB: a worker that outgrows its charge, and two that map one
// file.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "base/sys.h"
#include "tests/faults/harness.h"

namespace bulkhead::supervisor::test {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr milliseconds kLongEnough(60000);
constexpr uint64_t kMiB = 1 << 20;

SupervisionSettings MemorySettings(const std::string& hook = {}) {
  SupervisionSettings settings;
  settings.breaker.deaths = 1'000'000;
  settings.idle_release = Duration(0);
  settings.model.context = 256;
  settings.model.sequences = 1;
  settings.test_hook = hook;
  return settings;
}

std::string MakeModel(const std::string& directory) {
  const std::string path = directory + "/random.gguf";
  const std::string command = fmt::format(
      "{} --arch qwen3 --type q8_0 --layers 4 --embedding 1024 --feed-forward 2048 --heads 16 --kv-heads 8 --head 64 "
      "--context 512 --vocabulary 2048 --seed 1 {} >/dev/null",
      MAKE_MODEL, path);
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  return path;
}

void Change(OffloadRequest& request) {
  request.input = std::vector<int32_t>{300, 301, 302};
  request.sampling.set_seed(7);
  request.sampling.set_ignore_eos(true);
  request.max_tokens = 8;
  request.on_worker_death = v1::ON_WORKER_DEATH_FAIL;
}

#ifndef BULKHEAD_SANITIZER
TEST(RealWorkerMemory, OneThatOutgrowsItsChargeSaysWhatItWantedAndTheNextGetsItTwiceAtMost) {
  Harness harness(HOOKED_WORKER, MemorySettings("allocate-at-token:3"));
  const std::string path = MakeModel(harness.directory());
  std::vector<uint64_t> estimates;
  v1::Death last;
  for (int i = 0; i < 4; ++i) {
    const auto recording = harness.Stream(harness.Open("random", path), "", nullptr, Change);
    ASSERT_TRUE(harness.RunUntil([&] { return recording->ended() || !recording->ids.empty(); }, kLongEnough));
    const auto residents = harness.offload().ResidentModels();
    ASSERT_FALSE(residents.empty()) << recording->error.message;
    estimates.push_back(residents.front().estimate_bytes);
    ASSERT_TRUE(harness.RunUntil([&] { return recording->ended(); }, kLongEnough));
    EXPECT_EQ(recording->error.reason, Reason::kWorkerOom) << recording->error.message;
    EXPECT_THAT(recording->error.message, HasSubstr("wanted 8388608, in use"));
    EXPECT_LT(recording->ids.size(), 8u);
    const v1::Death death = harness.offload().Deaths().back();
    EXPECT_EQ(death.oom_wanted_bytes(), 8 * kMiB);
    EXPECT_LE(death.oom_in_use_bytes(), death.oom_limit_bytes());
    EXPECT_GT(death.oom_in_use_bytes() + death.oom_wanted_bytes(), death.oom_limit_bytes());
    EXPECT_EQ(death.phase(), "decode");
    last = death;
    ASSERT_TRUE(harness.RunUntil([&] { return harness.offload().ResidentModels().empty(); }));
  }
  // What was wanted plus an eighth; and no more than two times.
  EXPECT_GT(estimates[1], estimates[0] + 60 * kMiB);
  EXPECT_GT(estimates[2], estimates[1] + 8 * kMiB);
  EXPECT_EQ(estimates[3], estimates[2]);
  EXPECT_EQ(harness.offload().Budget().charged_bytes, 0u);
  // The lesson outlives the daemon.
  harness.Restart();
  const auto recording = harness.Stream(harness.Open("random", path), "", nullptr, Change);
  ASSERT_TRUE(harness.RunUntil([&] { return recording->ended() || !recording->ids.empty(); }, kLongEnough));
  EXPECT_EQ(harness.offload().ResidentModels().front().estimate_bytes, estimates[3]);
}

TEST(RealWorkerMemory, SomebodysSigkillIsNoOutOfMemory) {
  Harness harness(REAL_WORKER, MemorySettings());
  const auto recording =
      harness.Stream(harness.Open("random", MakeModel(harness.directory())), "", nullptr, [](OffloadRequest& request) {
        Change(request);
        request.max_tokens = 200;
      });
  ASSERT_TRUE(harness.RunUntil([&] { return !recording->ids.empty() || recording->ended(); }, kLongEnough));
  ASSERT_FALSE(harness.Pids().empty());
  const uint64_t estimate = harness.offload().ResidentModels().front().estimate_bytes;
  sys::KillGroup(harness.Pids().front(), SIGKILL);
  ASSERT_TRUE(harness.RunUntil([&] { return recording->ended(); }, kLongEnough));
  EXPECT_EQ(recording->error.reason, Reason::kWorkerCrashed) << recording->error.message;
  const auto next = harness.Stream(harness.Open("random", harness.directory() + "/random.gguf"), "", nullptr, Change);
  ASSERT_TRUE(harness.RunUntil([&] { return next->ended(); }, kLongEnough));
  EXPECT_EQ(harness.offload().ResidentModels().front().estimate_bytes, estimate);
}
#endif

TEST(RealWorkerMemory, TwoWorkersOnOneFileAreChargedItsWeightsOnceAndMeasuredSo) {
  Harness harness(REAL_WORKER, MemorySettings());
  const std::string path = MakeModel(harness.directory());
  for (const char* const name : {"one", "two"}) {
    const auto recording = harness.Stream(harness.Open(name, path), "", nullptr, Change);
    ASSERT_TRUE(harness.RunUntil([&] { return recording->ended(); }, kLongEnough));
    ASSERT_EQ(recording->ids.size(), 8u) << recording->error.message;
  }
  bool measured = false;
  harness.offload().MeasureMaps([&] { measured = true; });
  ASSERT_TRUE(harness.RunUntil([&] { return measured; }));
  const auto residents = harness.offload().ResidentModels();
  ASSERT_EQ(residents.size(), 2u);
  const uint64_t weights = residents[0].shared_bytes;
  EXPECT_GT(weights, 20 * kMiB);
  EXPECT_EQ(residents[0].file, residents[1].file);
  const uint64_t own = (residents[0].charge_bytes - weights) + (residents[1].charge_bytes - weights);
  EXPECT_EQ(harness.offload().Budget().charged_bytes, weights + own);
  // Each has the whole file in its map; together they hold it once. The program's own pages are a few megabytes.
  for (const ResidentModel& resident : residents) {
    EXPECT_GE(resident.file_bytes, weights);
    EXPECT_GE(resident.share_bytes, weights / 2);
    EXPECT_LE(resident.share_bytes, weights / 2 + 8 * kMiB);
    EXPECT_LE(resident.measured_bytes, resident.charge_bytes - weights);
  }
  fmt::print("weights {} MiB: mapped {} + {} MiB, of which {} + {} are held\n", weights / kMiB,
             residents[0].file_bytes / kMiB, residents[1].file_bytes / kMiB, residents[0].share_bytes / kMiB,
             residents[1].share_bytes / kMiB);
}

}  // namespace
}  // namespace bulkhead::supervisor::test
