// The rules of cgroup v2 that the tree depends on, held against the fake and, where this machine lets us, the kernel.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>

#include "supervisor/cgroup_tree.h"
#include "supervisor/own_cgroup.h"
#include "tests/supervisor/fake_cgroup_fs.h"

namespace bulkhead::supervisor::test {
namespace {

// One world to hold to the rules: a file system, processes in it, and a controller that may be turned on.
class World {
 public:
  virtual ~World() = default;
  virtual CgroupFs& fs() = 0;
  [[nodiscard]] virtual std::string controller() const = 0;
  // A file that this controller brings.
  [[nodiscard]] virtual std::string file() const = 0;
  // A process in the topmost group of the world.
  virtual pid_t Begin() = 0;
  virtual void End(pid_t pid) = 0;
  virtual bool Ended(pid_t pid) = 0;
};

class FakeWorld final : public World {
 public:
  CgroupFs& fs() override { return fs_; }
  [[nodiscard]] std::string controller() const override { return "memory"; }
  [[nodiscard]] std::string file() const override { return "memory.max"; }
  pid_t Begin() override {
    fs_.Begin(++last_, "");
    return last_;
  }
  void End(pid_t pid) override { fs_.End(pid); }
  bool Ended(pid_t pid) override { return !fs_.Alive(pid); }

 private:
  FakeCgroupFs fs_;
  pid_t last_ = 100;
};

// A group of our own at the top of the machine's v2 hierarchy, and children that only wait.
class KernelWorld final : public World {
 public:
  // Null where that cannot be had; `why` begins with a reason code.
  static std::unique_ptr<KernelWorld> Make(std::string* why) {
    const auto place = OwnCgroup("");
    if (!place.has_value()) return *why = "[no-cgroup2] no cgroup v2 is mounted", nullptr;
    if (::geteuid() != 0) return *why = "[not-root] groups are made by root", nullptr;
    if (std::filesystem::exists("/run/systemd/system")) {
      return *why = "[cgroup2-is-systemds] systemd alone makes groups here", nullptr;
    }
    auto top = MakeKernelCgroupFs(place->mount);
    std::string offered;
    (void)top->Read("", "cgroup.controllers", &offered);
    for (const char* const name : {"memory", "hugetlb"}) {
      if ((" " + offered).find(std::string(" ") + name) == std::string::npos) continue;
      auto world = std::unique_ptr<KernelWorld>(new KernelWorld(std::move(top), place->mount, name));
      if (world->top_->MakeGroup(world->name_) == 0) return world;
      return *why = "[no-cgroup2] no group can be made", nullptr;
    }
    return *why = "[no-cgroup2] it has no controller to turn on", nullptr;
  }

  ~KernelWorld() override {
    for (const pid_t pid : pids_) End(pid);
    for (const char* const group : {"/a/b", "/a", "/c", ""}) (void)top_->RemoveGroup(name_ + group);
    if (turned_on_) (void)top_->Write("", "cgroup.subtree_control", "-" + controller_);
  }
  KernelWorld(const KernelWorld&) = delete;
  KernelWorld& operator=(const KernelWorld&) = delete;

  CgroupFs& fs() override { return *fs_; }
  [[nodiscard]] const std::string& directory() const { return directory_; }
  [[nodiscard]] std::string controller() const override { return controller_; }
  [[nodiscard]] std::string file() const override { return controller_ == "memory" ? "memory.max" : "hugetlb.2MB.max"; }
  pid_t Begin() override {
    const pid_t pid = ::fork();
    if (pid == 0) {
      while (true) ::pause();
    }
    pids_.push_back(pid);
    EXPECT_EQ(fs_->Write("", "cgroup.procs", std::to_string(pid)), 0);
    return pid;
  }
  void End(pid_t pid) override {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  bool Ended(pid_t pid) override {
    for (int i = 0; i < 2000; ++i) {
      const pid_t got = ::waitpid(pid, nullptr, WNOHANG);
      if (got == pid || (got < 0 && errno == ECHILD)) return true;
      ::usleep(1000);
    }
    return false;
  }

 private:
  KernelWorld(std::unique_ptr<CgroupFs> top, const std::string& mount, std::string controller)
      : top_(std::move(top)), controller_(std::move(controller)) {
    name_ = "bulkhead-test-" + std::to_string(::getpid());
    std::string on;
    (void)top_->Read("", "cgroup.subtree_control", &on);
    if (on.find(controller_) == std::string::npos) {
      turned_on_ = top_->Write("", "cgroup.subtree_control", "+" + controller_) == 0;
    }
    directory_ = mount + "/" + name_;
    fs_ = MakeKernelCgroupFs(directory_);
  }

  std::unique_ptr<CgroupFs> top_;
  std::unique_ptr<CgroupFs> fs_;
  std::string controller_;
  std::string name_;
  std::string directory_;
  std::vector<pid_t> pids_;
  bool turned_on_ = false;
};

class CgroupRules : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (std::string(GetParam()) == "Fake") {
      world_ = std::make_unique<FakeWorld>();
      return;
    }
    std::string why;
    world_ = KernelWorld::Make(&why);
    if (world_ == nullptr) GTEST_SKIP() << why;
  }
  CgroupFs& fs() { return world_->fs(); }
  int Enter(const std::string& group, pid_t pid) { return fs().Write(group, "cgroup.procs", std::to_string(pid)); }
  int Control(const std::string& group, const std::string& text) {
    return fs().Write(group, "cgroup.subtree_control", text);
  }
  // The kernel may still be busy with a process that has just ended.
  int RemoveSoon(const std::string& group) {
    int error = -EBUSY;
    for (int i = 0; i < 2000 && (error = fs().RemoveGroup(group)) == -EBUSY; ++i) ::usleep(1000);
    return error;
  }
  std::unique_ptr<World> world_;
};

TEST_P(CgroupRules, AGroupIsMadeOnceAndOnlyInOneThatExists) {
  EXPECT_EQ(fs().MakeGroup("a"), 0);
  EXPECT_EQ(fs().MakeGroup("a"), -EEXIST);
  EXPECT_EQ(fs().MakeGroup("none/b"), -ENOENT);
  EXPECT_EQ(fs().MakeGroup("a/b"), 0);
  std::vector<std::string> names;
  EXPECT_EQ(fs().Groups("", &names), 0);
  EXPECT_EQ(names, std::vector<std::string>{"a"});
}

TEST_P(CgroupRules, AGroupIsNotRemovedWhileAProcessOrAGroupIsInIt) {
  ASSERT_EQ(fs().MakeGroup("a"), 0);
  ASSERT_EQ(fs().MakeGroup("a/b"), 0);
  const pid_t pid = world_->Begin();
  ASSERT_EQ(Enter("a/b", pid), 0);
  EXPECT_EQ(fs().RemoveGroup("a/b"), -EBUSY);
  EXPECT_EQ(fs().RemoveGroup("a"), -EBUSY);
  world_->End(pid);
  EXPECT_EQ(fs().RemoveGroup("a"), -EBUSY);
  EXPECT_EQ(RemoveSoon("a/b"), 0);
  EXPECT_EQ(RemoveSoon("a"), 0);
}

TEST_P(CgroupRules, NothingIsLeftOfAGroupThatWasRemoved) {
  ASSERT_EQ(fs().MakeGroup("a"), 0);
  ASSERT_EQ(fs().RemoveGroup("a"), 0);
  std::string text;
  EXPECT_EQ(fs().RemoveGroup("a"), -ENOENT);
  EXPECT_EQ(fs().Read("a", "cgroup.procs", &text), -ENOENT);
  EXPECT_EQ(fs().Write("a", "cgroup.kill", "1"), -ENOENT);
}

TEST_P(CgroupRules, ControllersAreNotTurnedOnBesideProcesses) {
  const pid_t pid = world_->Begin();
  ASSERT_EQ(fs().MakeGroup("a"), 0);
  EXPECT_EQ(Control("", "+" + world_->controller()), -EBUSY);
  EXPECT_EQ(Enter("a", pid), 0);
  EXPECT_EQ(Control("", "+" + world_->controller()), 0);
}

TEST_P(CgroupRules, NoProcessEntersAGroupThatHasControllersBelow) {
  const pid_t pid = world_->Begin();
  ASSERT_EQ(fs().MakeGroup("a"), 0);
  ASSERT_EQ(Enter("a", pid), 0);
  ASSERT_EQ(Control("", "+" + world_->controller()), 0);
  EXPECT_EQ(Enter("", pid), -EBUSY);
  std::string text;
  EXPECT_EQ(fs().Read("a", "cgroup.procs", &text), 0);
  EXPECT_EQ(text, std::to_string(pid) + "\n");
}

TEST_P(CgroupRules, AControllersFilesAreThereOnlyWhereTheGroupAboveTurnedItOn) {
  std::string text;
  ASSERT_EQ(fs().MakeGroup("a"), 0);
  EXPECT_EQ(fs().Read("a", world_->file(), &text), -ENOENT);
  EXPECT_EQ(fs().Write("a", world_->file(), "max"), -ENOENT);
  ASSERT_EQ(Control("", "+" + world_->controller()), 0);
  EXPECT_EQ(fs().Write("a", world_->file(), "2097152"), 0);
  EXPECT_EQ(fs().Read("a", world_->file(), &text), 0);
  EXPECT_EQ(text, "2097152\n");
  EXPECT_EQ(fs().Write("a", world_->file(), "many"), -EINVAL);
}

TEST_P(CgroupRules, AControllerIsTurnedOnFromTheTopDownAndOffFromTheBottomUp) {
  const std::string name = world_->controller();
  ASSERT_EQ(fs().MakeGroup("a"), 0);
  ASSERT_EQ(fs().MakeGroup("a/b"), 0);
  EXPECT_EQ(Control("a", "+" + name), -ENOENT);
  EXPECT_EQ(Control("a", "+nonsense"), -EINVAL);
  ASSERT_EQ(Control("", "+" + name), 0);
  ASSERT_EQ(Control("a", "+" + name), 0);
  EXPECT_EQ(Control("", "-" + name), -EBUSY);
  EXPECT_EQ(Control("a", "-" + name), 0);
  EXPECT_EQ(Control("", "-" + name), 0);
}

TEST_P(CgroupRules, WhatIsNoProcessDoesNotEnter) {
  ASSERT_EQ(fs().MakeGroup("a"), 0);
  EXPECT_EQ(fs().Write("a", "cgroup.procs", "x"), -EINVAL);
  const pid_t pid = world_->Begin();
  world_->End(pid);
  EXPECT_EQ(Enter("a", pid), -ESRCH);
}

TEST_P(CgroupRules, AKillReachesEveryProcessBelowAndNoOther) {
  ASSERT_EQ(fs().MakeGroup("a"), 0);
  ASSERT_EQ(fs().MakeGroup("a/b"), 0);
  ASSERT_EQ(fs().MakeGroup("c"), 0);
  const pid_t one = world_->Begin();
  const pid_t two = world_->Begin();
  const pid_t other = world_->Begin();
  ASSERT_EQ(Enter("a", one), 0);
  ASSERT_EQ(Enter("a/b", two), 0);
  ASSERT_EQ(Enter("c", other), 0);
  EXPECT_EQ(fs().Write("a", "cgroup.kill", "2"), -ERANGE);
  EXPECT_EQ(fs().Write("a", "cgroup.kill", "1"), 0);
  EXPECT_TRUE(world_->Ended(one));
  EXPECT_TRUE(world_->Ended(two));
  EXPECT_EQ(fs().RemoveGroup("c"), -EBUSY);
  EXPECT_EQ(RemoveSoon("a/b"), 0);
  EXPECT_EQ(RemoveSoon("a"), 0);
}

// A child that takes `bytes` once it is let go, and holds them.
pid_t BeginGrowing(size_t bytes, int go) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  char byte = 0;
  while (::read(go, &byte, 1) != 1) {
  }
  std::vector<char> taken(bytes, 'x');
  while (true) ::pause();
}

TEST(KernelLeaf, WhoOutgrowsItIsKilledByTheKernelAndCountedInIt) {
  std::string why;
  const auto world = KernelWorld::Make(&why);
  if (world == nullptr) GTEST_SKIP() << why;
  if (world->controller() != "memory") GTEST_SKIP() << "[no-cgroup2-memory] cgroup v1 has the memory controller here";
  constexpr uint64_t kMiB = 1 << 20;
  const pid_t stand_in = world->Begin();
  auto adoption = CgroupTree::Adopt(MakeKernelCgroupFs(world->directory()), stand_in, "test");
  ASSERT_NE(adoption.tree, nullptr) << adoption.why;
  ASSERT_TRUE(adoption.tree->has_memory()) << adoption.why;
  auto leaf = *adoption.tree->MakeLeaf("1", {32 * kMiB, 32 * kMiB, 16, 100});
  int go[2];
  ASSERT_EQ(::pipe(go), 0);
  const pid_t pid = BeginGrowing(64 * kMiB, go[0]);
  ASSERT_TRUE(leaf->Enter(pid).ok());
  ASSERT_EQ(::write(go[1], "x", 1), 1);
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  const LeafReading reading = leaf->Read();
  EXPECT_EQ(reading.oom_kills, 1u);
  EXPECT_GE(reading.limit_hits, 1u);
  leaf.reset();
  adoption.tree.reset();
  world->End(stand_in);
  EXPECT_EQ(::rmdir((world->directory() + "/daemon").c_str()), 0);
  for (const int fd : go) ::close(fd);
}

INSTANTIATE_TEST_SUITE_P(Worlds, CgroupRules, testing::Values("Fake", "Kernel"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace bulkhead::supervisor::test
