#include "ipc/blocking_frame_socket.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <utility>

#include "ipc/frame.h"
#include "tests/ipc/socket_pair.h"

namespace bulkhead::ipc {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(BlockingFrameSocket, SendsMoreThanTheSocketHoldsWhileThePeerReads) {
  SocketPair pair;
  BlockingFrameSocket out(std::move(pair.first));
  BlockingFrameSocket in(std::move(pair.second));
  const std::string large(4 << 20, 'x');
  std::thread sender([&] { EXPECT_TRUE(out.SendEncoded(EncodePayload(large), seconds(20), Memfd()).ok()); });
  const auto frame = in.Receive(seconds(20));
  sender.join();
  ASSERT_TRUE(frame.ok());
  EXPECT_EQ(frame->bytes, large);
  EXPECT_TRUE(frame->descriptor.valid());
}

TEST(BlockingFrameSocket, EveryWaitHasALimit) {
  SocketPair pair;
  BlockingFrameSocket out(std::move(pair.first));
  EXPECT_EQ(ReasonOf(out.Receive(milliseconds(1)).status()), Reason::kDeadlineExceeded);
  const std::string large(4 << 20, 'x');
  EXPECT_EQ(ReasonOf(out.SendEncoded(EncodePayload(large), milliseconds(1))), Reason::kDeadlineExceeded);
}

TEST(BlockingFrameSocket, GivesWhatWasSentBeforeTheEndAndThenTheEnd) {
  SocketPair pair;
  BlockingFrameSocket in(std::move(pair.second));
  {
    BlockingFrameSocket out(std::move(pair.first));
    ASSERT_TRUE(out.SendEncoded(EncodePayload("a"), seconds(1)).ok());
    ASSERT_TRUE(out.SendEncoded(EncodePayload("b"), seconds(1)).ok());
  }
  EXPECT_EQ(in.Receive(seconds(1))->bytes, "a");
  EXPECT_EQ(in.Receive(seconds(1))->bytes, "b");
  EXPECT_EQ(ReasonOf(in.Receive(seconds(1)).status()), Reason::kConnectionLost);
  EXPECT_EQ(ReasonOf(in.Receive(seconds(1)).status()), Reason::kConnectionLost);
}

}  // namespace
}  // namespace bulkhead::ipc
