#include "ipc/unix_address.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/sys.h"

namespace bulkhead::ipc {
namespace {

class UnixAddressTest : public testing::Test {
 protected:
  UnixAddressTest() {
    char name[] = "/tmp/bulkhead-ipc-XXXXXX";
    directory_ = mkdtemp(name);
  }
  ~UnixAddressTest() override { std::filesystem::remove_all(directory_); }
  [[nodiscard]] std::string Path(const std::string& name) const { return directory_ + "/" + name; }

  std::string directory_;
};

TEST_F(UnixAddressTest, TakesPathsUpTo107BytesAndNamesBothLengthsBeyond) {
  EXPECT_TRUE(MakeUnixAddress(std::string(107, 'a')).ok());
  const auto refused = MakeUnixAddress(std::string(108, 'a'));
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kInvalidRequest);
  EXPECT_NE(Message(refused.status()).find("108 bytes, limit 107"), std::string::npos);
  EXPECT_FALSE(MakeUnixAddress("").ok());
}

TEST_F(UnixAddressTest, ALongTemporaryDirectoryIsRefusedByNameForBothSides) {
  const std::string path = Path(std::string(100, 'd') + "/socket");
  EXPECT_EQ(ReasonOf(ListenUnix(path, 0660, 8).status()), Reason::kInvalidRequest);
  EXPECT_EQ(ReasonOf(ConnectUnix(path).status()), Reason::kInvalidRequest);
}

TEST_F(UnixAddressTest, ListensWithTheModeAskedForWhateverTheUmask) {
  const mode_t old = umask(077);
  const auto listener = ListenUnix(Path("s"), 0660, 8);
  umask(old);
  ASSERT_TRUE(listener.ok());
  struct stat info = {};
  ASSERT_EQ(sys::Lstat(Path("s").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0660u);
  EXPECT_TRUE(ConnectUnix(Path("s")).ok());
}

TEST_F(UnixAddressTest, ReplacesAStaleSocketButNothingElse) {
  ASSERT_TRUE(ListenUnix(Path("s"), 0600, 8).ok());
  EXPECT_EQ(ReasonOf(ConnectUnix(Path("s")).status()), Reason::kDaemonUnreachable);
  const auto again = ListenUnix(Path("s"), 0600, 8);
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(ConnectUnix(Path("s")).ok());
  std::ofstream(Path("file")) << "precious";
  EXPECT_EQ(ReasonOf(ListenUnix(Path("file"), 0600, 8).status()), Reason::kInvalidRequest);
  EXPECT_TRUE(std::filesystem::exists(Path("file")));
}

TEST_F(UnixAddressTest, NobodyThereIsUnreachable) {
  EXPECT_EQ(ReasonOf(ConnectUnix(Path("nothing")).status()), Reason::kDaemonUnreachable);
}

}  // namespace
}  // namespace bulkhead::ipc
