#include "ipc/frame.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bulkhead/v1/client.pb.h"

namespace bulkhead::ipc {
namespace {

// Feeds `bytes` in the given pieces; payloads in order, or the error.
absl::StatusOr<std::vector<std::string>> Feed(FrameReader& reader, const std::vector<std::string_view>& pieces) {
  std::vector<std::string> payloads;
  for (std::string_view piece : pieces) {
    while (true) {
      ASSIGN_OR_RETURN(const auto payload, reader.Next(&piece));
      if (!payload.has_value()) break;
      payloads.emplace_back(*payload);
    }
    EXPECT_TRUE(piece.empty());
  }
  return payloads;
}

TEST(FrameReader, GivesTheSamePayloadsAtEverySplitIntoThreePieces) {
  const std::vector<std::string> expected = {"a", "second payload", std::string(300, 'x')};
  std::string stream;
  for (const std::string& payload : expected) stream += EncodePayload(payload);
  const std::string_view all = stream;
  for (size_t first = 0; first <= all.size(); ++first) {
    for (size_t second = first; second <= all.size(); second += 1 + second / 16) {
      FrameReader reader(1024);
      const auto got = Feed(reader, {all.substr(0, first), all.substr(first, second - first), all.substr(second)});
      ASSERT_TRUE(got.ok());
      ASSERT_EQ(*got, expected) << first << " " << second;
      ASSERT_FALSE(reader.mid_frame());
    }
  }
}

TEST(FrameReader, GivesTheSamePayloadsByteByByte) {
  const std::string stream = EncodePayload("one") + EncodePayload("two");
  FrameReader reader(16);
  std::vector<std::string_view> pieces;
  for (size_t i = 0; i < stream.size(); ++i) pieces.push_back(std::string_view(stream).substr(i, 1));
  EXPECT_EQ(Feed(reader, pieces).value(), (std::vector<std::string>{"one", "two"}));
}

TEST(FrameReader, TellsEveryCutInsideAFrame) {
  const std::string stream = EncodePayload("payload");
  for (size_t cut = 0; cut <= stream.size(); ++cut) {
    FrameReader reader(16);
    ASSERT_TRUE(Feed(reader, {std::string_view(stream).substr(0, cut)}).ok());
    EXPECT_EQ(reader.mid_frame(), cut != 0 && cut != stream.size()) << cut;
  }
}

TEST(FrameReader, RefusesEveryBadLengthAndStaysRefusing) {
  struct Case {
    std::string header;
    Reason reason;
  };
  const std::vector<Case> cases = {
      {std::string(4, '\0'), Reason::kProtocolError},
      {std::string("\x11\0\0\0", 4), Reason::kFrameTooLarge},
      {std::string("\0\0\0\x80", 4), Reason::kFrameTooLarge},
      {std::string("\xff\xff\xff\xff", 4), Reason::kFrameTooLarge},
  };
  for (const Case& c : cases) {
    FrameReader reader(16);
    const auto got = Feed(reader, {c.header});
    ASSERT_EQ(ReasonOf(got.status()), c.reason);
    const std::string good = EncodePayload("x");
    EXPECT_EQ(ReasonOf(Feed(reader, {good}).status()), c.reason);
  }
}

TEST(FrameReader, TakesAFrameOfExactlyTheLimit) {
  FrameReader reader(16);
  const std::string frame = EncodePayload(std::string(16, 'y'));
  EXPECT_EQ(Feed(reader, {frame}).value().size(), 1u);
}

TEST(FrameReader, HoldsNoMoreThanWasReceivedWhateverLengthIsDeclared) {
  FrameReader reader(kHardMaxFrame);
  const std::string header("\0\0\0\x04", 4);  // 64 MiB
  ASSERT_TRUE(Feed(reader, {header, "0123456789"}).ok());
  EXPECT_LE(reader.buffered_bytes(), 64u);
  const std::string more(10000, 'z');
  ASSERT_TRUE(Feed(reader, {more}).ok());
  EXPECT_LE(reader.buffered_bytes(), 2 * 10010u);
}

TEST(FrameReader, GivesALargeFramesBufferBack) {
  FrameReader reader(kHardMaxFrame);
  const std::string frame = EncodePayload(std::string(1 << 20, 'z'));
  const std::string_view view = frame;
  ASSERT_EQ(Feed(reader, {view.substr(0, 1000), view.substr(1000)}).value().size(), 1u);
  EXPECT_LT(reader.buffered_bytes(), 1000u);
}

TEST(FrameReader, ANewLimitCountsForTheNextFrame) {
  FrameReader reader(4);
  reader.set_max_frame_bytes(100);
  const std::string frame = EncodePayload(std::string(50, 'a'));
  EXPECT_EQ(Feed(reader, {frame}).value().size(), 1u);
}

TEST(EncodeFrame, RefusesMoreThanTheLimitAndNothing) {
  v1::ClientFrame frame;
  EXPECT_FALSE(EncodeFrame(frame).ok());
  frame.set_request_id(1);
  frame.mutable_tokenize()->set_text(std::string(100, 'a'));
  EXPECT_EQ(ReasonOf(EncodeFrame(frame, 50).status()), Reason::kFrameTooLarge);
  FrameReader reader(200);
  const std::string encoded = EncodeFrame(frame, 200).value();
  v1::ClientFrame back;
  ASSERT_TRUE(back.ParseFromString(Feed(reader, {encoded}).value().at(0)));
  EXPECT_EQ(back.tokenize().text(), frame.tokenize().text());
}

}  // namespace
}  // namespace bulkhead::ipc
