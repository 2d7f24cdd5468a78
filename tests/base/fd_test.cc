#include "base/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "base/mapped_file.h"
#include "base/sys.h"

namespace bulkhead {
namespace {

TEST(UniqueFd, ClosesWhatItOwnsOnceAndOnlyOnce) {
  int number = -1;
  {
    UniqueFd fd(sys::Open("/dev/null", O_RDONLY));
    ASSERT_TRUE(fd.valid());
    number = fd.get();
    UniqueFd other(std::move(fd));
    EXPECT_FALSE(fd.valid());  // NOLINT(bugprone-use-after-move): the moved-from state is the point
    EXPECT_EQ(other.get(), number);
  }
  EXPECT_EQ(sys::Fcntl(number, F_GETFD), -EBADF);
}

TEST(Sys, TheFaultHookReplacesACall) {
  sys::SetFaultHook([](const char* call) { return std::string_view(call) == "Open" ? EMFILE : 0; });
  EXPECT_EQ(sys::Open("/dev/null", O_RDONLY), -EMFILE);
  sys::SetFaultHook(nullptr);
  UniqueFd fd(sys::Open("/dev/null", O_RDONLY));
  EXPECT_TRUE(fd.valid());
}

TEST(MappedFile, RefusesWhatIsNotARegularFile) {
  UniqueFd fd(sys::Open("/dev/null", O_RDONLY));
  const auto map = MappedFile::Map(fd.get());
  ASSERT_FALSE(map.ok());
  EXPECT_EQ(ReasonOf(map.status()), Reason::kModelInvalid);
}

}  // namespace
}  // namespace bulkhead
