// The golden models through the real worker, behind its whole fence: the C library opens files when it first needs them
// (conversions, locales, unwinding), and only a run through everything shows that nothing here makes it. The in-process
// golden tests hold the numbers; this one holds ids, within the margins of the reference's own choices.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/sys.h"
#include "ipc/worker_abi.h"
#include "tests/golden/golden_set.h"
#include "tests/worker/worker_process.h"

namespace bulkhead::worker {
namespace {

using engine::GoldenCase;
using engine::GoldenModel;
using v1::WorkerFrame;

// With f16 KV and the file's own weight type, a choice nearer than this may fall the other way.
double MarginOf(const GoldenCase& golden) { return std::max(0.2, 4 * golden.native_rms); }

v1::DaemonFrame Ask(uint64_t handle, const GoldenCase& golden) {
  v1::DaemonFrame frame;
  v1::WorkerGenerate& generate = *frame.mutable_generate();
  generate.set_handle(handle);
  generate.set_prompt(golden.prompt);
  generate.set_max_tokens(static_cast<uint32_t>(golden.greedy_ids.size()));
  generate.mutable_sampling()->set_temperature(0);
  generate.mutable_sampling()->set_seed(1);
  return frame;
}

// How many ids were compared before the first choice too near to call.
size_t Compare(const GoldenCase& golden, const std::vector<int32_t>& ids, bool stopped) {
  // The reference goes on after an end-of-generation token.
  EXPECT_TRUE(stopped || ids.size() == golden.greedy_ids.size()) << ids.size();
  for (size_t i = 0; i < std::min(ids.size(), golden.greedy_ids.size()); ++i) {
    if (ids[i] == golden.greedy_ids[i]) continue;
    // What follows another choice is another text.
    EXPECT_LE(golden.greedy_margin[i], MarginOf(golden))
        << ids[i] << " for " << golden.greedy_ids[i] << " at step " << i << " of prompt '" << golden.prompt << "'";
    return i;
  }
  return ids.size();
}

struct Heard {
  std::vector<int32_t> prompt_ids;
  std::vector<int32_t> ids;
  std::string text;
  bool ended = false;
  bool stopped = false;  // by an end-of-generation token
};

Heard Listen(WorkerProcess& worker, uint64_t handle, const GoldenCase& golden) {
  Heard heard;
  EXPECT_TRUE(worker.Send(Ask(handle, golden)));
  while (!heard.ended) {
    const auto frame = worker.Receive(std::chrono::seconds(60));
    if (!frame.has_value()) {
      const auto exit = worker.Wait(std::chrono::seconds(5));
      ADD_FAILURE() << "the worker fell silent, signal " << exit.value_or(Exit{}).signal << ": " << worker.Stderr();
      return heard;
    }
    if (frame->has_started()) {
      heard.prompt_ids.assign(frame->started().prompt_ids().begin(), frame->started().prompt_ids().end());
    }
    for (const v1::SequenceStep& step : frame->step().sequences()) {
      for (const v1::Token& token : step.tokens()) heard.ids.push_back(token.id());
      heard.text += step.text();
      heard.ended = step.finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
      heard.stopped = step.finish_reason() == v1::FINISH_REASON_STOP;
      EXPECT_EQ(step.error_reason(), v1::REASON_UNSPECIFIED) << step.error_message();
      heard.ended = heard.ended || step.error_reason() != v1::REASON_UNSPECIFIED;
    }
  }
  return heard;
}

TEST(GoldenFence, TheWholeSetGivesTheReferencesIdsBehindTheFence) {
#ifdef BULKHEAD_SANITIZER
  GTEST_SKIP() << "[sanitizer-no-memory-fence] a sanitizer build cannot be fenced";
#endif
  const std::vector<GoldenModel> models = engine::LoadGoldenSet(engine::CommittedGoldenFolder(), {""});
  ASSERT_GE(models.size(), 10u);
  size_t compared = 0;
  size_t steps = 0;
  for (const GoldenModel& model : models) {
    SCOPED_TRACE(model.name);
    const UniqueFd file(sys::Open(model.path.c_str(), O_RDONLY));
    ASSERT_TRUE(file.valid());
    WorkerProcess worker({"bulkhead-worker", {}, file.get(), 0});
    ASSERT_TRUE(worker.ConfigureAndAwaitReady());
    uint64_t handle = 0;
    for (const GoldenCase& golden : model.cases) {
      const Heard heard = Listen(worker, ++handle, golden);
      ASSERT_TRUE(heard.ended);
      EXPECT_EQ(heard.prompt_ids, golden.prompt_ids) << "prompt '" << golden.prompt << "'";
      compared += Compare(golden, heard.ids, heard.stopped);
      steps += golden.greedy_ids.size();
    }
    // Also its end: unwinding is what opens libraries late.
    v1::DaemonFrame shutdown;
    shutdown.mutable_shutdown();
    ASSERT_TRUE(worker.Send(shutdown));
    ASSERT_TRUE(worker.Wait().has_value());
    EXPECT_EQ(worker.Wait()->code, ipc::kWorkerExitOk) << worker.Stderr();
  }
  std::printf("%zu models, %zu of %zu steps compared\n", models.size(), compared, steps);
  EXPECT_GT(compared, steps / 2);
}

}  // namespace
}  // namespace bulkhead::worker
