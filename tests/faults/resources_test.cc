// Memory as it is measured, and CPUs as they are divided, with real processes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <filesystem>

#include "base/sys.h"
#include "supervisor/machine_cpus.h"
#include "tests/faults/harness.h"

namespace bulkhead::supervisor::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;

// CPUs on which every thread of the process may run.
std::vector<int> CpusOf(pid_t pid) {
  std::vector<int> cpus;
  bool first = true;
  for (const auto& task : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid))) {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    if (sys::SchedGetAffinity(std::stoi(task.path().filename()), sizeof(mask), &mask) < 0) continue;
    std::vector<int> here;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &mask)) here.push_back(cpu);
    }
    EXPECT_TRUE(first || here == cpus) << "the threads of one process run in different places";
    cpus = here;
    first = false;
  }
  return cpus;
}

class Resources : public testing::Test {
 protected:
  Resources() : harness_(FAKE_WORKER) {}

  std::shared_ptr<Recording> Drip(const std::string& name) {
    auto recording = harness_.Stream(harness_.Script(name), "drip 100000");
    EXPECT_TRUE(harness_.RunUntil([&] { return !recording->ids.empty(); }));
    return recording;
  }
  ResidentModel Of(const std::string& model) {
    for (const ResidentModel& resident : harness_.offload().ResidentModels()) {
      if (resident.model == model) return resident;
    }
    return {};
  }
  std::string GrantOf(const std::string& model) {
    for (const auto& worker : harness_.offload().Resources().workers) {
      if (worker.allocation_id.starts_with(model + "#")) return worker.grant;
    }
    return {};
  }
  void Cancel(const std::shared_ptr<Recording>& recording, const std::string& id) {
    EXPECT_TRUE(harness_.offload().Cancel(id, CancelCause::kOwner));
    EXPECT_TRUE(harness_.RunUntil([&] { return recording->ended(); }));
  }

  Harness harness_;
};

TEST_F(Resources, BusyWorkersDivideTheCpusAndTheLastOneGetsThemAllBack) {
  const MachineCpus machine = ReadMachineCpus();
  std::vector<int> all = machine.numbers();
  std::sort(all.begin(), all.end());
  const auto first = Drip("first");
  EXPECT_EQ(Of("first").threads, machine.usable);
  EXPECT_EQ(CpusOf(Of("first").pid), all);
  EXPECT_THAT(GrantOf("first"), HasSubstr("nobody else is busy"));

  std::string id;
  const auto second = harness_.Stream(harness_.Script("second"), "drip 100000", &id);
  EXPECT_TRUE(harness_.RunUntil([&] { return !second->ids.empty(); }));
  EXPECT_EQ(Of("first").threads + Of("second").threads, std::max(machine.usable, 2u));
  if (machine.placed() && all.size() > 1) {
    std::vector<int> both = CpusOf(Of("first").pid);
    const std::vector<int> other = CpusOf(Of("second").pid);
    EXPECT_EQ(both.size(), Of("first").threads);
    both.insert(both.end(), other.begin(), other.end());
    std::sort(both.begin(), both.end());
    EXPECT_EQ(both, all) << "each CPU belongs to one of them";
  }
  EXPECT_THAT(GrantOf("second"), HasSubstr("2 busy workers"));

  Cancel(second, id);
  EXPECT_TRUE(harness_.RunUntil([&] { return Of("first").threads == machine.usable; }));
  EXPECT_EQ(CpusOf(Of("first").pid), all);
  EXPECT_THAT(GrantOf("second"), HasSubstr("idle"));
}

TEST_F(Resources, AFailureToPlaceIsAdvertisedAndTheStreamGoesOn) {
  if (ReadMachineCpus().usable < 2) return;  // nothing is placed on one CPU
  const auto first = Drip("first");
  sys::SetFaultHook([](const char* call) { return std::string_view(call) == "SchedSetAffinity" ? EPERM : 0; });
  const auto second = Drip("second");
  sys::SetFaultHook(nullptr);
  EXPECT_THAT(harness_.offload().Degraded(), HasSubstr("cannot be placed"));
  const size_t before = first->ids.size();
  EXPECT_TRUE(harness_.RunUntil([&] { return first->ids.size() > before + 3; }));
}

TEST_F(Resources, GrowthBeyondTheEstimateIsChargedWithinASecond) {
  const auto recording = harness_.Stream(harness_.Script("model"), "grow 64");
  EXPECT_TRUE(harness_.RunUntil([&] { return !recording->ids.empty(); }));
  const auto seen = std::chrono::steady_clock::now();
  EXPECT_TRUE(harness_.RunUntil([&] { return Of("model").charge_bytes >= 64 * kMiB; }));
  EXPECT_LE(std::chrono::steady_clock::now() - seen, milliseconds(1500)) << "a second, and the time of a busy machine";
  EXPECT_LT(Of("model").estimate_bytes, 16 * kMiB);
  EXPECT_GE(harness_.offload().Budget().charged_bytes, 64 * kMiB);
  EXPECT_GE(Of("model").private_bytes, 64 * kMiB);
}

TEST_F(Resources, APeakIsKeptOverARestartAndEstimatesTheNextWorker) {
  const ModelSource model = harness_.Script("model");
  const auto recording = harness_.Stream(model, "grow 64");
  EXPECT_TRUE(harness_.RunUntil([&] { return Of("model").charge_bytes >= 64 * kMiB; }));
  harness_.Restart();
  EXPECT_EQ(harness_.Finish(harness_.Open("model", harness_.directory() + "/model.gguf"), "count 1")->text, "0 ");
  EXPECT_GE(Of("model").estimate_bytes, 64 * kMiB);
}

TEST_F(Resources, WhenLiveMemoryIsGoneTheIdleGoAndTheBusyStay) {
  EXPECT_EQ(harness_.Finish(harness_.Script("idle"), "count 1")->text, "0 ");
  const auto busy = Drip("busy");
  harness_.machine.available = 64 * kMiB;
  EXPECT_TRUE(harness_.RunUntil([&] { return Of("idle").pid == 0; }, seconds(10)));
  EXPECT_NE(Of("busy").pid, 0);
  EXPECT_FALSE(busy->ended());
  EXPECT_TRUE(harness_.offload().Deaths().empty()) << "it was released, it did not die";
}

}  // namespace
}  // namespace bulkhead::supervisor::test
