#include "base/reason.h"

#include <gtest/gtest.h>

#include "bulkhead/v1/types.pb.h"

namespace bulkhead {
namespace {

TEST(Reason, TheTableAndTheProtocolNameTheSameReasonsWithTheSameNumbers) {
  const auto* wire = v1::Reason_descriptor();
  ASSERT_EQ(static_cast<size_t>(wire->value_count()), AllReasons().size());
  for (const ReasonInfo& row : AllReasons()) {
    const auto* value = wire->FindValueByNumber(static_cast<int>(row.reason));
    ASSERT_NE(value, nullptr) << row.name;
    EXPECT_EQ(value->name(), "REASON_" + std::string(row.name));
  }
}

TEST(Reason, NamesGoBothWays) {
  for (const ReasonInfo& row : AllReasons()) EXPECT_EQ(ReasonFromName(row.name), row.reason);
  EXPECT_EQ(ReasonFromName("NO_SUCH"), std::nullopt);
  EXPECT_EQ(InfoOf(static_cast<Reason>(9999)).reason, Reason::kInternal);
}

TEST(Reason, EveryErrorEndsTheCommandWithAFailure) {
  for (const ReasonInfo& row : AllReasons()) {
    EXPECT_NE(row.exit_code, ExitCode::kOk) << row.name;
    EXPECT_NE(row.code, absl::StatusCode::kOk) << row.name;
  }
}

}  // namespace
}  // namespace bulkhead
