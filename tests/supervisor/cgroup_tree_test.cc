#include "supervisor/cgroup_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "supervisor/own_cgroup.h"
#include "tests/supervisor/fake_cgroup_fs.h"

namespace bulkhead::supervisor::test {
namespace {

using testing::HasSubstr;

constexpr pid_t kDaemon = 10;
constexpr pid_t kWorker = 20;
constexpr uint64_t kMiB = 1 << 20;

// The fake outlives what the tree owns.
class Borrowed final : public CgroupFs {
 public:
  explicit Borrowed(FakeCgroupFs* fs) : fs_(fs) {}
  int MakeGroup(const std::string& group) override { return fs_->MakeGroup(group); }
  int RemoveGroup(const std::string& group) override { return fs_->RemoveGroup(group); }
  int Write(const std::string& group, std::string_view file, std::string_view text) override {
    return fs_->Write(group, file, text);
  }
  int Read(const std::string& group, std::string_view file, std::string* text) override {
    return fs_->Read(group, file, text);
  }
  int Groups(const std::string& group, std::vector<std::string>* names) override { return fs_->Groups(group, names); }

 private:
  FakeCgroupFs* fs_;
};

class CgroupTreeTest : public testing::Test {
 protected:
  CgroupTree::Adoption Adopt() {
    fs_.Begin(kDaemon, "");
    return CgroupTree::Adopt(std::make_unique<Borrowed>(&fs_), kDaemon, "/g");
  }
  std::string Value(const std::string& group, const std::string& file) {
    std::string text;
    EXPECT_EQ(fs_.Read(group, file, &text), 0) << file;
    return text;
  }
  FakeCgroupFs fs_;
};

TEST_F(CgroupTreeTest, TheDaemonMovesToALeafOfItsOwnAndTurnsOnTheControllers) {
  const auto adoption = Adopt();
  ASSERT_NE(adoption.tree, nullptr) << adoption.why;
  EXPECT_EQ(adoption.why, "/g: a leaf per worker");
  EXPECT_EQ(fs_.GroupOf(kDaemon), "daemon");
  EXPECT_EQ(Value("", "cgroup.subtree_control"), "cpu memory pids\n");
  EXPECT_EQ(Value("daemon", "cpu.weight"), "400\n");
}

TEST_F(CgroupTreeTest, BesideOtherProcessesItSaysWhatItLacksAndStillMakesLeaves) {
  fs_.Begin(11, "");
  const auto adoption = Adopt();
  ASSERT_NE(adoption.tree, nullptr);
  EXPECT_FALSE(adoption.tree->has_memory());
  EXPECT_THAT(adoption.why, HasSubstr("without memory (other processes are in our group)"));
  EXPECT_TRUE(adoption.tree->MakeLeaf("1", LimitsOf(kMiB, kMiB, 2)).ok());
}

TEST_F(CgroupTreeTest, AGroupThatCannotBeTakenOverIsNamedWithTheReason) {
  fs_.FailWrite("cgroup.procs", EPERM);
  const auto adoption = Adopt();
  EXPECT_EQ(adoption.tree, nullptr);
  EXPECT_THAT(adoption.why, testing::AllOf(HasSubstr("/g cannot be taken over"), HasSubstr("daemon/cgroup.procs"),
                                           HasSubstr("not permitted")));
}

TEST_F(CgroupTreeTest, LeavesOfAnEarlierLifeAreKilledAndRemoved) {
  fs_.MakeGroup("worker-1.7");
  fs_.Begin(77, "worker-1.7");
  const auto adoption = Adopt();
  EXPECT_FALSE(fs_.Alive(77));
  std::vector<std::string> groups;
  fs_.Groups("", &groups);
  EXPECT_EQ(groups, std::vector<std::string>{"daemon"});
}

TEST_F(CgroupTreeTest, ALeafHasEveryLimitBeforeAProcessEnters) {
  const auto adoption = Adopt();
  const auto leaf = adoption.tree->MakeLeaf("1.2", {400 * kMiB, 300 * kMiB, 20, 25});
  ASSERT_TRUE(leaf.ok());
  EXPECT_EQ((*leaf)->name(), "worker-1.2");
  EXPECT_EQ(Value("worker-1.2", "memory.max"), "419430400\n");
  EXPECT_EQ(Value("worker-1.2", "memory.high"), "314572800\n");
  EXPECT_EQ(Value("worker-1.2", "memory.swap.max"), "0\n");
  EXPECT_EQ(Value("worker-1.2", "memory.oom.group"), "1\n");
  EXPECT_EQ(Value("worker-1.2", "pids.max"), "20\n");
  EXPECT_EQ(Value("worker-1.2", "cpu.weight"), "25\n");
  (*leaf)->SetCpuWeight(kWorkerCpuWeight);
  EXPECT_EQ(Value("worker-1.2", "cpu.weight"), "100\n");
  fs_.Begin(kWorker, "daemon");
  EXPECT_TRUE((*leaf)->Enter(kWorker).ok());
  EXPECT_EQ(fs_.GroupOf(kWorker), "worker-1.2");
}

TEST_F(CgroupTreeTest, ALeafThatCannotBeLimitedIsNotLeftBehind) {
  const auto adoption = Adopt();
  fs_.FailWrite("memory.max", EIO);
  const auto leaf = adoption.tree->MakeLeaf("1", LimitsOf(kMiB, kMiB, 2));
  EXPECT_FALSE(leaf.ok());
  EXPECT_THAT(Message(leaf.status()), HasSubstr("worker-1/memory.max"));
  EXPECT_EQ(fs_.RemoveGroup("worker-1"), -ENOENT);
}

TEST_F(CgroupTreeTest, AKernelWithoutSwapAccountingIsNoError) {
  const auto adoption = Adopt();
  fs_.FailWrite("memory.swap.max", ENOENT);
  EXPECT_TRUE(adoption.tree->MakeLeaf("1", LimitsOf(kMiB, kMiB, 2)).ok());
}

TEST_F(CgroupTreeTest, WithoutControllersALeafStillKills) {
  FakeCgroupFs bare(std::set<std::string>{});
  bare.Begin(kDaemon, "");
  const auto adoption = CgroupTree::Adopt(std::make_unique<Borrowed>(&bare), kDaemon, "/g");
  ASSERT_NE(adoption.tree, nullptr);
  EXPECT_EQ(adoption.why, "/g: a leaf per worker, without memory, pids, cpu");
  auto leaf = *adoption.tree->MakeLeaf("1", LimitsOf(kMiB, kMiB, 2));
  bare.Begin(kWorker, "daemon");
  bare.Begin(kWorker + 1, "daemon");
  EXPECT_TRUE(leaf->Enter(kWorker).ok());
  EXPECT_TRUE(leaf->Enter(kWorker + 1).ok());
  EXPECT_FALSE(leaf->Read().private_bytes.has_value());
  EXPECT_TRUE(leaf->Kill());
  EXPECT_FALSE(bare.Alive(kWorker));
  EXPECT_FALSE(bare.Alive(kWorker + 1));
  EXPECT_TRUE(bare.Alive(kDaemon));
}

TEST_F(CgroupTreeTest, AKillForMemoryIsToldFromSomebodysKill) {
  const auto adoption = Adopt();
  auto starved = *adoption.tree->MakeLeaf("1", {8 * kMiB, 8 * kMiB, 20, 25});
  auto killed = *adoption.tree->MakeLeaf("2", {8 * kMiB, 8 * kMiB, 20, 25});
  fs_.Begin(kWorker, "worker-1");
  fs_.Begin(kWorker + 1, "worker-2");
  fs_.Take(kWorker, 6 * kMiB);
  fs_.Take(kWorker + 1, 6 * kMiB);
  EXPECT_TRUE(fs_.Alive(kWorker));
  fs_.Take(kWorker, 4 * kMiB);
  fs_.End(kWorker + 1);
  EXPECT_FALSE(fs_.Alive(kWorker));
  EXPECT_EQ(starved->Read().oom_kills, 1u);
  EXPECT_EQ(starved->Read().memory_max, 8 * kMiB);
  EXPECT_EQ(killed->Read().oom_kills, 0u);
}

TEST_F(CgroupTreeTest, FilePagesGoBeforeAnybodyDies) {
  const auto adoption = Adopt();
  auto leaf = *adoption.tree->MakeLeaf("1", {8 * kMiB, 8 * kMiB, 20, 25});
  fs_.Begin(kWorker, "worker-1");
  fs_.Take(kWorker, 2 * kMiB, 5 * kMiB);
  EXPECT_EQ(leaf->Read().file_bytes, 5 * kMiB);
  fs_.Take(kWorker, 4 * kMiB);
  EXPECT_TRUE(fs_.Alive(kWorker));
  EXPECT_EQ(leaf->Read().file_bytes, 2 * kMiB);
  EXPECT_EQ(leaf->Read().private_bytes, 6 * kMiB);
}

TEST_F(CgroupTreeTest, ThePrivatePeakOutlivesTheProcess) {
  const auto adoption = Adopt();
  auto leaf = *adoption.tree->MakeLeaf("1", {64 * kMiB, 64 * kMiB, 20, 25});
  fs_.Begin(kWorker, "worker-1");
  fs_.Take(kWorker, 5 * kMiB);
  EXPECT_EQ(leaf->Read().private_bytes, 5 * kMiB);
  fs_.End(kWorker);
  EXPECT_EQ(leaf->Read().private_bytes, 0u);
  EXPECT_EQ(leaf->Read().private_peak, 5 * kMiB);
}

TEST_F(CgroupTreeTest, ALeafWhoseProcessTakesItsTimeIsRemovedLater) {
  const auto adoption = Adopt();
  auto leaf = *adoption.tree->MakeLeaf("1", LimitsOf(kMiB, kMiB, 2));
  fs_.Begin(kWorker, "worker-1", true);
  leaf.reset();
  EXPECT_EQ(adoption.tree->RemoveLeft(), 1u);
  fs_.End(kWorker);
  EXPECT_EQ(adoption.tree->RemoveLeft(), 0u);
  EXPECT_EQ(fs_.RemoveGroup("worker-1"), -ENOENT);
}

TEST(LimitsOf, HoldPrivateMemoryAndTheWholeOfTheWeights) {
  const LeafLimits limits = LimitsOf(100 * kMiB, 900 * kMiB, 2);
  EXPECT_GT(limits.memory_high, 1000 * kMiB);
  EXPECT_LT(limits.memory_high, 1100 * kMiB);
  EXPECT_GT(limits.memory_max, limits.memory_high);
  EXPECT_LT(limits.memory_max, 1100 * kMiB);
  EXPECT_EQ(limits.memory_max % 4096, 0u);
  EXPECT_GE(limits.pids_max, 2u + 4u);
}

TEST(LimitsOf, AreNoneWhereThePrivatePartIsNotLimited) {
  EXPECT_EQ(LimitsOf(0, 900 * kMiB, 2).memory_max, 0u);
  EXPECT_EQ(LimitsOf(0, 900 * kMiB, 2).memory_high, 0u);
}

// --- Where we stand.

constexpr char kUnified[] = "25 1 0:22 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr char kHybrid[] =
    "25 1 0:22 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n"
    "26 25 0:23 / /sys/fs/cgroup/unified rw shared:4 - cgroup2 cgroup2 rw\n"
    "27 25 0:24 / /sys/fs/cgroup/cpu,cpuacct rw shared:5 - cgroup cgroup rw,cpu,cpuacct\n"
    "28 25 0:25 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

TEST(FindCgroup, OnAUnifiedMachineIsBelowItsMount) {
  const auto place = FindCgroup("", kUnified, "0::/system.slice/bulkhead.service\n");
  ASSERT_TRUE(place.has_value());
  EXPECT_TRUE(place->v2);
  EXPECT_EQ(place->directory(), "/sys/fs/cgroup/system.slice/bulkhead.service");
  EXPECT_FALSE(FindCgroup("memory", kUnified, "0::/x\n").has_value());
}

TEST(FindCgroup, OnAMixedMachineEachControllerHasItsOwnPlace) {
  const char groups[] = "4:cpu,cpuacct:/a\n3:memory:/m/n\n0::/u\n";
  EXPECT_EQ(FindCgroup("", kHybrid, groups)->directory(), "/sys/fs/cgroup/unified/u");
  EXPECT_EQ(FindCgroup("cpu", kHybrid, groups)->directory(), "/sys/fs/cgroup/cpu,cpuacct/a");
  EXPECT_EQ(FindCgroup("memory", kHybrid, groups)->directory(), "/sys/fs/cgroup/memory/m/n");
  EXPECT_FALSE(FindCgroup("memory", kHybrid, groups)->v2);
}

TEST(FindCgroup, InAContainerWithoutItsOwnNamespaceTheMountIsTheGroup) {
  const char mounts[] = "25 1 0:22 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n";
  EXPECT_EQ(FindCgroup("", mounts, "0::/docker/abc\n")->directory(), "/sys/fs/cgroup");
  EXPECT_EQ(FindCgroup("", mounts, "0::/docker/abc/d\n")->directory(), "/sys/fs/cgroup/d");
  EXPECT_EQ(FindCgroup("", kUnified, "0::/../outside\n")->directory(), "/sys/fs/cgroup");
}

TEST(FindCgroup, MakesNothingOfTextThatIsNone) {
  EXPECT_FALSE(FindCgroup("", "", "").has_value());
  EXPECT_FALSE(FindCgroup("", "1 2 - cgroup2\n - \n", "0::/\n").has_value());
  EXPECT_FALSE(FindCgroup("memory", kHybrid, "3:memory\nmemory:/x\n").has_value());
}

}  // namespace
}  // namespace bulkhead::supervisor::test
