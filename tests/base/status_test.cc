#include "base/status.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace bulkhead {
namespace {

TEST(Status, CarriesItsReasonAndTheReasonsCode) {
  const absl::Status status = Error(Reason::kQueueFull, "queue of demo: 8 waiting, limit 8");
  EXPECT_EQ(ReasonOf(status), Reason::kQueueFull);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Message(status), "queue of demo: 8 waiting, limit 8");
}

TEST(Status, AnErrorWithoutAReasonIsInternal) {
  EXPECT_EQ(ReasonOf(absl::OkStatus()), Reason::kUnspecified);
  EXPECT_EQ(ReasonOf(absl::UnknownError("x")), Reason::kInternal);
}

TEST(Status, ErrnoErrorNamesTheThingAndTheErrno) {
  EXPECT_EQ(Message(ErrnoError(ENOENT, "open /x")), "open /x: No such file or directory");
}

}  // namespace
}  // namespace bulkhead
