// The real worker, killed from outside at instants spread over load, prefill and decode of a random model of about
// 200 MB: each time one typed terminal, no process, nothing charged, no descriptor lost; and the worker that comes next
// gives the same tokens as the first.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <utility>

#include "base/sys.h"
#include "tests/faults/harness.h"

namespace bulkhead::supervisor::test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

#ifdef BULKHEAD_SANITIZER
// Time, not memory, is what a sanitizer build lacks.
constexpr int kEach = 2;
#else
constexpr int kEach = 50;
#endif
constexpr int kPromptTokens = 160;  // long enough for an instant inside its prefill to be hit
constexpr int kShortPrompt = 4;
constexpr milliseconds kPatience(60000);

SupervisionSettings Settings() {
  SupervisionSettings settings;
  settings.breaker.deaths = 1'000'000;
  settings.idle_release = Duration(0);
  settings.model.context = 512;
  settings.model.sequences = 1;
  return settings;
}

class RealWorkerKills : public testing::Test {
 protected:
  RealWorkerKills() : harness_(REAL_WORKER, Settings()) {}

  void SetUp() override {
    const std::string path = harness_.directory() + "/random.gguf";
    const std::string command = fmt::format(
        "{} --arch qwen3 --type q8_0 --layers 12 --embedding 1024 --feed-forward 3072 --heads 16 --kv-heads 8 "
        "--head 64 --context 2048 --vocabulary 8192 --seed 1 {} >/dev/null",
        MAKE_MODEL, path);
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    model_ = harness_.Open("random", path);
    fmt::print(stderr, "model: {} bytes\n", std::filesystem::file_size(path));
  }

  std::shared_ptr<Recording> Start(uint32_t max_tokens, int prompt_tokens = kPromptTokens) {
    return harness_.Stream(model_, "", nullptr, [&](OffloadRequest& request) {
      std::vector<int32_t> ids;
      for (int i = 0; i < prompt_tokens; ++i) ids.push_back(300 + (i * 37) % 4000);
      request.input = std::move(ids);
      request.sampling.set_seed(7);
      request.sampling.set_ignore_eos(true);
      request.max_tokens = max_tokens;
    });
  }

  void RunFor(Duration duration) {
    const auto until = std::chrono::steady_clock::now() + duration;
    harness_.RunUntil([&] { return std::chrono::steady_clock::now() >= until; }, milliseconds(5000));
  }

  // Kills one worker somewhere in `phase`, as far as the moment can be chosen; what it really was is in the record.
  void KillIn(const std::string& phase, const Duration& spread) {
    const auto recording = Start(300, phase == "decode" ? kShortPrompt : kPromptTokens);
    pid_t pid = 0;
    const auto alive = [&] {
      const auto pids = harness_.Pids();
      pid = pids.empty() ? 0 : pids.front();
      return pid > 0;
    };
    ASSERT_TRUE(harness_.RunUntil(alive, kPatience));
    if (phase == "prefill") {
      ASSERT_TRUE(harness_.RunUntil([&] { return recording->Saw("started") || recording->ended(); }, kPatience));
    }
    if (phase == "decode") {
      ASSERT_TRUE(harness_.RunUntil([&] { return !recording->ids.empty() || recording->ended(); }, kPatience));
    }
    RunFor(Duration(static_cast<int64_t>(std::uniform_real_distribution<double>(0, 1)(random_) *
                                         static_cast<double>(spread.count()))));
    ASSERT_FALSE(recording->ended()) << recording->error.message;
    ASSERT_TRUE(alive());
    sys::KillGroup(pid, SIGKILL);
    ASSERT_TRUE(harness_.RunUntil([&] { return recording->ended(); }));
    EXPECT_EQ(recording->terminals, 1);
    EXPECT_FALSE(recording->after_terminal);
    EXPECT_EQ(recording->error.reason, Reason::kWorkerCrashed) << recording->error.message;
    EXPECT_FALSE(ProcessExists(pid));
    EXPECT_TRUE(harness_.offload().ResidentModels().empty());
    EXPECT_EQ(harness_.offload().Budget().charged_bytes, 0u);
    const v1::Death death = harness_.offload().Deaths().back();
    EXPECT_EQ(death.death_id(), recording->error.death_id);
    EXPECT_EQ(death.signal(), SIGKILL);
    ++histogram_[death.phase()];
  }

  Harness harness_;
  ModelSource model_;
  std::mt19937 random_{11};
  std::map<std::string, int> histogram_;
};

TEST_F(RealWorkerKills, EachOfTwoHundredEndsInOneTypedTerminalAndTheNextIsServed) {
  auto clock = std::chrono::steady_clock::now();
  const auto lap = [&] {
    return std::chrono::steady_clock::now() - std::exchange(clock, std::chrono::steady_clock::now());
  };
  const auto first = Start(12);
  ASSERT_TRUE(harness_.RunUntil([&] { return first->Saw("started") || first->ended(); }, milliseconds(60000)));
  const Duration load = lap();
  ASSERT_TRUE(harness_.RunUntil([&] { return !first->ids.empty() || first->ended(); }, milliseconds(60000)));
  const Duration prefill = lap();
  ASSERT_TRUE(harness_.RunUntil([&] { return first->ended(); }, milliseconds(60000)));
  ASSERT_EQ(first->ids.size(), 12u) << first->error.message;
  bool released = false;
  harness_.offload().ReleaseModel("random", {}, [&](const absl::StatusOr<bool>& done) { released = *done; });
  ASSERT_TRUE(harness_.RunUntil([&] { return released; }));
  const int descriptors = DescriptorCount();

  const std::map<std::string, Duration> spreads = {
      {"load", load * 8 / 10}, {"prefill", prefill * 8 / 10}, {"decode", milliseconds(40)}};
  // Always where there are fewest so far: which phase a kill really hit is known only afterwards.
  const auto fewest = [&] {
    return *std::min_element(spreads.begin(), spreads.end(),
                             [&](const auto& a, const auto& b) { return histogram_[a.first] < histogram_[b.first]; });
  };
  int kills = 0;
  while (kills < 4 * kEach || (histogram_[fewest().first] < kEach && kills < 8 * kEach)) {
    const auto [phase, spread] = fewest();
    KillIn(phase, spread);
    if (HasFatalFailure()) return;
    ++kills;
  }
  fmt::print("load {} ms, prefill {} ms; {} kills by phase of death:\n", load / milliseconds(1),
             prefill / milliseconds(1), kills);
  for (const auto& [phase, count] : histogram_) fmt::print("  {:<8} {}\n", phase, count);
  for (const char* phase : {"load", "prefill", "decode"}) EXPECT_GE(histogram_[phase], kEach) << phase;
  EXPECT_TRUE(harness_.RunUntil([&] { return DescriptorCount() <= descriptors; }, milliseconds(3000)));

  const auto last = Start(12);
  ASSERT_TRUE(harness_.RunUntil([&] { return last->ended(); }, milliseconds(60000)));
  EXPECT_EQ(last->ids, first->ids);
  EXPECT_EQ(last->text, first->text);
}

}  // namespace
}  // namespace bulkhead::supervisor::test
