#include "admission/policy.h"

#include <gtest/gtest.h>

#include <limits>

namespace bulkhead::admission {
namespace {

TEST(Policy, ProfilesAreSharesOfMemory) {
  Policy policy;
  policy.ram_bytes = 1000;
  EXPECT_EQ(CeilingOf(policy), 400u);
  policy.profile = Profile::kLocalFocused;
  EXPECT_EQ(CeilingOf(policy), 800u);
  policy.profile = Profile::kCustom;
  policy.custom_bytes = 123;
  EXPECT_EQ(CeilingOf(policy), 123u);
  policy.custom_bytes = 0;
  EXPECT_EQ(CeilingOf(policy), 0u);
  policy.custom_bytes = 5000;
  EXPECT_EQ(CeilingOf(policy), 1000u) << "no more than there is";
}

TEST(Policy, TheCgroupsLimitLowersEveryProfile) {
  Policy policy;
  policy.ram_bytes = 64 * (uint64_t{1} << 30);
  policy.cgroup_limit_bytes = 1000;
  EXPECT_EQ(CeilingOf(policy), 400u);
  policy.profile = Profile::kCustom;
  policy.custom_bytes = (uint64_t{1} << 30);
  EXPECT_EQ(CeilingOf(policy), 1000u);
  policy.cgroup_limit_bytes = std::numeric_limits<uint64_t>::max();
  policy.custom_bytes = (uint64_t{1} << 30);
  EXPECT_EQ(CeilingOf(policy), (uint64_t{1} << 30)) << "v1 writes 'no limit' as a huge number";
}

TEST(Policy, ProfileNamesGoBothWays) {
  for (const Profile profile : {Profile::kEveryday, Profile::kLocalFocused, Profile::kCustom}) {
    EXPECT_EQ(ProfileFromName(NameOf(profile)), profile);
  }
  EXPECT_EQ(ProfileFromName("greedy"), std::nullopt);
}

TEST(LiveHeadroom, SubtractsReserveMappedAndUntouched) {
  const LiveMemory memory{.total_bytes = 10 * (uint64_t{1} << 30), .available_bytes = 9 * (uint64_t{1} << 30)};
  EXPECT_EQ(LiveHeadroom(memory, (uint64_t{1} << 30), 2 * (uint64_t{1} << 30)), 4 * (uint64_t{1} << 30));
  EXPECT_EQ(LiveHeadroom(memory, 9 * (uint64_t{1} << 30), 0), 0u);
  EXPECT_EQ(LiveHeadroom(memory, std::numeric_limits<uint64_t>::max(), (uint64_t{1} << 30)), 0u) << "no wrap";
}

TEST(LiveHeadroom, ReserveIsATenthButAtLeastTwoGibibytes) {
  EXPECT_EQ(LiveReserve(8 * (uint64_t{1} << 30)), 2 * (uint64_t{1} << 30));
  EXPECT_EQ(LiveReserve(100 * (uint64_t{1} << 30)), 100 * (uint64_t{1} << 30) / 100 * 10);
}

}  // namespace
}  // namespace bulkhead::admission
