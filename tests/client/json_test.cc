#include "client/cli/json.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "bulkhead/v1/client.pb.h"

namespace bulkhead::cli {
namespace {

TEST(Json, PrintsEveryScalarInFieldOrderEvenWhereItIsEmpty) {
  EXPECT_EQ(ToJson(v1::Started(), "started"),
            R"({"event":"started","inference_id":"","allocation_id":"","seed":0,"prompt_tokens":0,"context":0})");
}

TEST(Json, LeavesOutOptionalFieldsThatAreNotSet) {
  v1::Delta delta;
  delta.set_text("a");
  delta.add_tokens()->set_id(5);
  EXPECT_EQ(ToJson(delta, "delta"), R"({"event":"delta","index":0,"text":"a","tokens":[{"id":5}]})");
  delta.mutable_tokens(0)->set_logprob(-0.5f);
  EXPECT_EQ(ToJson(delta), R"({"index":0,"text":"a","tokens":[{"id":5,"logprob":-0.5}]})");
}

TEST(Json, PrintsSixtyFourBitNumbersAsNumbers) {
  v1::Started started;
  started.set_seed(18446744073709551615u);
  EXPECT_NE(ToJson(started).find(R"("seed":18446744073709551615,)"), std::string::npos);
}

TEST(Json, NamesEnumerationsWithoutTheirPrefix) {
  v1::Done done;
  done.set_finish_reason(v1::FINISH_REASON_STOP_STRING);
  EXPECT_EQ(ToJson(done), R"({"finish_reason":"STOP_STRING","stop_string":""})");
  v1::TerminateReply reply;
  reply.set_ack(v1::TerminateReply::CONFIRMED);
  EXPECT_NE(ToJson(reply).find(R"("ack":"CONFIRMED")"), std::string::npos);
  v1::RequestInfo info;
  info.set_priority(v1::PRIORITY_BATCH);
  EXPECT_NE(ToJson(info).find(R"("priority":"BATCH")"), std::string::npos);
}

TEST(Json, PrintsMapsAsObjects) {
  v1::Manifest manifest;
  (*manifest.mutable_tensor_types())["Q8_0"] = 34;
  EXPECT_NE(ToJson(manifest).find(R"("tensor_types":{"Q8_0":34})"), std::string::npos);
}

TEST(Json, EscapesWhatJsonForbidsAndReplacesWhatIsNotUtf8) {
  EXPECT_EQ(JsonString("a\"\\\n\t\r\x01\x7f"), R"("a\"\\\n\t\r\u0001\u007f")");
  EXPECT_EQ(JsonString("\xC3\xA9\xF0\x9F\x90\x8B"), "\"\xC3\xA9\xF0\x9F\x90\x8B\"");
  EXPECT_EQ(JsonString("\xC3"), R"("\ufffd")");
  EXPECT_EQ(JsonString("\xED\xA0\x80"), R"("\ufffd\ufffd\ufffd")");
}

TEST(Json, ParsesForEverySingleByteAndPair) {
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string text = {static_cast<char>(first), static_cast<char>(second)};
      ASSERT_TRUE(nlohmann::json::accept(JsonString(text))) << first << " " << second;
    }
  }
}

TEST(Json, PrintsNumbersThatJsonLacksAsNull) {
  v1::Token token;
  token.set_logprob(-std::numeric_limits<float>::infinity());
  EXPECT_EQ(ToJson(token), R"({"id":0,"logprob":null})");
}

}  // namespace
}  // namespace bulkhead::cli
