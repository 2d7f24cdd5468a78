#include "daemon/state_lock.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/sys.h"

namespace bulkhead::daemon {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class StateLockTest : public ::testing::Test {
 protected:
  StateLockTest() : root_(fs::temp_directory_path() / ("lock-" + std::to_string(sys::GetPid()))) {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~StateLockTest() override { fs::remove_all(root_); }
  fs::path root_;
};

TEST_F(StateLockTest, ASecondOwnerIsRefusedAndToldThePid) {
  const auto first = StateLock::Acquire(root_);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = StateLock::Acquire(root_);
  EXPECT_EQ(ReasonOf(second.status()), Reason::kLimitExceeded);
  EXPECT_THAT(Message(second.status()), HasSubstr("pid " + std::to_string(sys::GetPid())));
}

TEST_F(StateLockTest, AnOwnerThatIsGoneLeavesTheLockFree) {
  { ASSERT_TRUE(StateLock::Acquire(root_).ok()); }
  EXPECT_TRUE(StateLock::Acquire(root_).ok());
}

TEST_F(StateLockTest, TheLockIsNotInheritedByWorkers) {
  const auto lock = StateLock::Acquire(root_);
  ASSERT_TRUE(lock.ok());
  int checked = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    if (fs::read_symlink(entry.path(), error) != root_ / "lock") continue;
    EXPECT_EQ(sys::Fcntl(std::stoi(entry.path().filename()), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    ++checked;
  }
  EXPECT_EQ(checked, 1);
}

TEST_F(StateLockTest, MissingParentsAreMade) {
  EXPECT_TRUE(MakeDirectories(root_ / "a/b/c", 0700).ok());
  EXPECT_TRUE(fs::is_directory(root_ / "a/b/c"));
  EXPECT_TRUE(MakeDirectories(root_ / "a/b/c", 0700).ok());
  EXPECT_FALSE(MakeDirectories("/proc/nowhere/x", 0700).ok());
}

}  // namespace
}  // namespace bulkhead::daemon
