#include "ipc/message.h"

#include <gtest/gtest.h>

#include <string>

#include "bulkhead/v1/client.pb.h"
#include "bulkhead/v1/worker.pb.h"

namespace bulkhead::ipc {
namespace {

std::string ConversationOf(int messages) {
  v1::ClientFrame frame;
  frame.set_request_id(7);
  for (int i = 0; i < messages; ++i) frame.mutable_generate()->mutable_messages()->add_messages();
  return frame.SerializeAsString();
}

TEST(ParseMessage, ReadsWhatWasWritten) {
  v1::ClientFrame frame;
  frame.set_request_id(9);
  frame.mutable_generate()->mutable_token_ids()->add_ids(-5);
  frame.mutable_generate()->mutable_sampling()->add_stop("end");
  const auto parsed = ParseMessage<v1::ClientFrame>(frame.SerializeAsString());
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ((*parsed)->request_id(), 9u);
  EXPECT_EQ((*parsed)->generate().token_ids().ids(0), -5);
}

TEST(ParseMessage, RefusesMoreElementsThanAllowed) {
  ShapeLimits limits;
  limits.max_elements = 10;
  EXPECT_TRUE(ParseMessage<v1::ClientFrame>(ConversationOf(8), limits).ok());  // and the two around them
  const auto refused = ParseMessage<v1::ClientFrame>(ConversationOf(9), limits);
  EXPECT_EQ(ReasonOf(refused.status()), Reason::kProtocolError);
}

TEST(ParseMessage, RefusesEightMillionEmptyMessagesByDefault) {
  // 16 MiB on the wire would become half a gigabyte of objects.
  std::string list;
  for (int i = 0; i < (8 << 20); ++i) list += std::string_view("\x0a\x00", 2);
  EXPECT_EQ(ReasonOf(ParseMessage<v1::MessageList>(list).status()), Reason::kProtocolError);
}

TEST(ParseMessage, CountsUnknownFieldsToo) {
  std::string unknown;
  for (int i = 0; i < 100; ++i) unknown += std::string_view("\xf8\x3f\x01", 3);  // field 1023, varint
  ShapeLimits limits;
  limits.max_elements = 99;
  EXPECT_FALSE(ParseMessage<v1::ClientFrame>(unknown, limits).ok());
  limits.max_elements = 100;
  EXPECT_TRUE(ParseMessage<v1::ClientFrame>(unknown, limits).ok());
}

TEST(ParseMessage, CountsNumbersPackedAndOneByOne) {
  v1::TokenList list;
  for (int i = 0; i < 100; ++i) list.add_ids(i * 1000);
  const std::string packed = list.SerializeAsString();
  std::string single;
  for (int i = 0; i < 100; ++i) single += std::string_view("\x08\x01", 2);
  ShapeLimits limits;
  limits.max_numbers = 99;
  EXPECT_FALSE(ParseMessage<v1::TokenList>(packed, limits).ok());
  EXPECT_FALSE(ParseMessage<v1::TokenList>(single, limits).ok());
  limits.max_numbers = 100;
  EXPECT_EQ((*ParseMessage<v1::TokenList>(packed, limits))->ids_size(), 100);
  EXPECT_EQ((*ParseMessage<v1::TokenList>(single, limits))->ids_size(), 100);
}

TEST(ParseMessage, RefusesGroups) {
  EXPECT_FALSE(ParseMessage<v1::ClientFrame>(std::string("\xfb\x3f\xfc\x3f", 4)).ok());
}

TEST(ParseMessage, RefusesEveryTruncationThatCutsAField) {
  v1::ClientFrame frame;
  frame.mutable_tokenize()->set_text("some text");
  const std::string whole = frame.SerializeAsString();
  for (size_t cut = 1; cut < whole.size(); ++cut) {
    EXPECT_FALSE(ParseMessage<v1::ClientFrame>(whole.substr(0, cut)).ok()) << cut;
  }
}

TEST(ParseMessage, RefusesTextThatIsNotUtf8) {
  v1::WorkerTokenize tokenize;
  std::string wire = "\x12\x02";
  wire += "\xc3\x28";
  EXPECT_FALSE(ParseMessage<v1::WorkerTokenize>(wire).ok());
}

TEST(ParseMessage, RefusesDeepNesting) {
  ShapeLimits limits;
  limits.max_depth = 2;
  EXPECT_FALSE(ParseMessage<v1::ClientFrame>(ConversationOf(1), limits).ok());
}

}  // namespace
}  // namespace bulkhead::ipc
