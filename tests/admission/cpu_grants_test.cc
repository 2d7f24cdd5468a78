#include "admission/cpu_grants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bulkhead::admission {
namespace {

using testing::ElementsAre;

TEST(UsableCpus, IsTheSmallerOfAffinityAndTheRoundedUpQuota) {
  EXPECT_EQ(UsableCpus(8, std::nullopt), 8u);
  EXPECT_EQ(UsableCpus(8, CpuQuota{150'000, 100'000}), 2u);
  EXPECT_EQ(UsableCpus(8, CpuQuota{100'000, 100'000}), 1u);
  EXPECT_EQ(UsableCpus(2, CpuQuota{800'000, 100'000}), 2u);
  EXPECT_EQ(UsableCpus(8, CpuQuota{1000, 100'000}), 1u);
  EXPECT_EQ(UsableCpus(8, CpuQuota{1000, 0}), 8u) << "a period of 0 says nothing";
}

TEST(DivideCpus, GivesDisjointSlicesWhoseSizesDifferByAtMostOne) {
  const std::vector<int> cpus = {0, 2, 4, 6, 8};
  const std::vector<uint64_t> busy = {11, 12};
  const auto grants = DivideCpus(cpus, 5, busy);
  ASSERT_EQ(grants.size(), 2u);
  EXPECT_EQ(grants[0].allocation, 11u);
  EXPECT_THAT(grants[0].cpus, ElementsAre(0, 2, 4));
  EXPECT_THAT(grants[1].cpus, ElementsAre(6, 8));
  EXPECT_EQ(grants[1].threads, 2u);
}

TEST(DivideCpus, GivesEachWorkerOneCpuInTurnWhereThereAreMoreWorkers) {
  const std::vector<int> cpus = {0, 1};
  const std::vector<uint64_t> busy = {1, 2, 3};
  const auto grants = DivideCpus(cpus, 2, busy);
  ASSERT_EQ(grants.size(), 3u);
  EXPECT_THAT(grants[0].cpus, ElementsAre(0));
  EXPECT_THAT(grants[1].cpus, ElementsAre(1));
  EXPECT_THAT(grants[2].cpus, ElementsAre(0));
}

TEST(DivideCpus, HonoursTheQuotaAndNeedsSomebodyBusy) {
  const std::vector<int> cpus = {0, 1, 2, 3};
  const std::vector<uint64_t> busy = {1};
  EXPECT_THAT(DivideCpus(cpus, 2, busy).at(0).cpus, ElementsAre(0, 1));
  EXPECT_TRUE(DivideCpus(cpus, 2, {}).empty());
}

}  // namespace
}  // namespace bulkhead::admission
