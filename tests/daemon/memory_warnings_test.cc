#include "daemon/memory_warnings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bulkhead::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kMiB = 1 << 20;

// 400 MiB of weights, 200 MiB of private memory: as estimated, as measured.
supervisor::ResidentModel Sound(const std::string& id, uint64_t inode = 1) {
  supervisor::ResidentModel model;
  model.allocation_id = id;
  model.state = "IDLE";
  model.estimate_bytes = 600 * kMiB;
  model.charge_bytes = 600 * kMiB;
  model.measured_bytes = 190 * kMiB;
  model.private_bytes = 180 * kMiB;
  model.shared_bytes = 400 * kMiB;
  model.file_bytes = 410 * kMiB;
  model.share_bytes = 405 * kMiB;
  model.file.inode = inode;
  return model;
}

TEST(MemoryWarnings, AreNoneWhereChargeAndMeasurementAgree) {
  EXPECT_THAT(MemoryWarnings(std::vector{Sound("a#1.1"), Sound("b#1.2", 2)}), IsEmpty());
}

TEST(MemoryWarnings, NameAWorkerThatOutgrewItsEstimate) {
  auto model = Sound("a#1.1");
  model.measured_bytes = 300 * kMiB;
  EXPECT_THAT(MemoryWarnings(std::vector{model}),
              ElementsAre(HasSubstr("a#1.1: grew to 300 MiB of private memory, 200 MiB")));
}

TEST(MemoryWarnings, NameAWorkerThatIsChargedFarMoreThanItEverUsed) {
  auto model = Sound("a#1.1");
  model.estimate_bytes = 4400 * kMiB;
  EXPECT_THAT(MemoryWarnings(std::vector{model}), ElementsAre(HasSubstr("never used more than 190 MiB")));
  model.state = "LOADING";
  EXPECT_THAT(MemoryWarnings(std::vector{model}), IsEmpty()) << "it has not touched its memory yet";
}

TEST(MemoryWarnings, NameAWorkerWhoseWeightsWereTakenFromMemory) {
  auto model = Sound("a#1.1");
  model.file_bytes = 100 * kMiB;
  EXPECT_THAT(MemoryWarnings(std::vector{model}), ElementsAre(HasSubstr("100 MiB of its 400 MiB of weights")));
}

TEST(MemoryWarnings, NameWorkersThatHoldOneFileTwice) {
  const auto twice = MemoryWarnings(std::vector{Sound("a#1.1"), Sound("b#1.2")});
  EXPECT_THAT(twice, ElementsAre(HasSubstr("a#1.1, b#1.2: map one file, charged once at 400 MiB, and hold 810 MiB")));
  auto half = Sound("a#1.1");
  half.share_bytes = 203 * kMiB;
  auto other = half;
  other.allocation_id = "b#1.2";
  EXPECT_THAT(MemoryWarnings(std::vector{half, other}), IsEmpty());
}

}  // namespace
}  // namespace bulkhead::daemon
