#include "ipc/frame_channel.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/ipc/socket_pair.h"

namespace bulkhead::ipc {
namespace {

struct Received {
  std::string bytes;
  UniqueFd descriptor;
};

class FrameChannelTest : public testing::Test {
 protected:
  void TearDown() override { sys::SetFaultHook(nullptr); }

  FrameChannel::ReadEnd ReadAll(FrameChannel& channel, size_t buffer_bytes = 4096) {
    std::vector<std::byte> buffer(buffer_bytes);
    auto end = channel.Read(buffer, 1000, [this](std::string_view bytes, UniqueFd descriptor) {
      received_.push_back({std::string(bytes), std::move(descriptor)});
      return true;
    });
    EXPECT_TRUE(end.ok()) << end.status();
    return end.ok() ? *end : FrameChannel::ReadEnd::kStopped;
  }

  // Bytes and descriptor in one message, as a client in another language may send them.
  static void SendRaw(int socket, std::string bytes, const std::vector<int>& fds) {
    alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
    iovec piece = {bytes.data(), bytes.size()};
    msghdr message = {};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    if (!fds.empty()) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
      std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
    }
    ASSERT_EQ(sys::SendMsg(socket, &message, 0), static_cast<ssize_t>(bytes.size()));
  }

  SocketPair pair_;
  std::vector<Received> received_;
};

TEST_F(FrameChannelTest, DescriptorsReachTheirFramesWhateverTheReadSize) {
  for (const size_t buffer_bytes : {1, 2, 3, 5, 7, 64, 4096}) {
    SocketPair pair;
    FrameChannel out(std::move(pair.first), 1 << 20);
    FrameChannel in(std::move(pair.second), 1 << 20);
    const UniqueFd one = Memfd();
    const UniqueFd two = Memfd();
    const ino_t first = InodeOf(one.get());
    const ino_t second = InodeOf(two.get());
    out.Queue(EncodePayload("plain"));
    out.Queue(EncodePayload("with one"), UniqueFd(sys::Fcntl(one.get(), F_DUPFD_CLOEXEC, 0)));
    out.Queue(EncodePayload("with two"), UniqueFd(sys::Fcntl(two.get(), F_DUPFD_CLOEXEC, 0)));
    out.Queue(EncodePayload("plain again"));
    ASSERT_TRUE(out.Flush().ok());
    EXPECT_EQ(out.queued_bytes(), 0u);
    received_.clear();
    EXPECT_EQ(ReadAll(in, buffer_bytes), FrameChannel::ReadEnd::kWouldBlock);
    ASSERT_EQ(received_.size(), 4u) << buffer_bytes;
    EXPECT_FALSE(received_[0].descriptor.valid());
    ASSERT_TRUE(received_[1].descriptor.valid());
    ASSERT_TRUE(received_[2].descriptor.valid());
    EXPECT_FALSE(received_[3].descriptor.valid());
    EXPECT_EQ(InodeOf(received_[1].descriptor.get()), first);
    EXPECT_EQ(InodeOf(received_[2].descriptor.get()), second);
  }
}

TEST_F(FrameChannelTest, ADescriptorGoesOnceThroughShortWrites) {
  pair_.Shrink();
  FrameChannel out(std::move(pair_.first), 1 << 20);
  FrameChannel in(std::move(pair_.second), 1 << 20);
  const std::string large(100000, 'x');
  out.Queue(EncodePayload(large), Memfd());
  out.Queue(EncodePayload("small"));
  int rounds = 0;
  while (out.queued_bytes() > 0 && ++rounds < 1000) {
    ASSERT_TRUE(out.Flush().ok());
    ReadAll(in);
  }
  EXPECT_GT(rounds, 2);
  ReadAll(in);
  ASSERT_EQ(received_.size(), 2u);
  EXPECT_EQ(received_[0].bytes, large);
  EXPECT_TRUE(received_[0].descriptor.valid());
  EXPECT_FALSE(received_[1].descriptor.valid());
}

std::atomic<int> g_calls{0};

// Every call but each seventh is interrupted; of the rest every second would block.
int Interrupt(const char* call) {
  if (std::strcmp(call, "SendMsg") != 0 && std::strcmp(call, "RecvMsg") != 0) return 0;
  const int n = ++g_calls;
  if (n % 7 != 0) return EINTR;
  return n % 14 == 0 ? EAGAIN : 0;
}

TEST_F(FrameChannelTest, InterruptedAndBlockedCallsLoseNothing) {
  FrameChannel out(std::move(pair_.first), 1 << 20);
  FrameChannel in(std::move(pair_.second), 1 << 20);
  sys::SetFaultHook(Interrupt);
  for (int i = 0; i < 50; ++i) out.Queue(EncodePayload(std::to_string(i)), i % 5 == 0 ? Memfd() : UniqueFd());
  for (int round = 0; round < 2000 && (out.queued_bytes() > 0 || received_.size() < 50); ++round) {
    ASSERT_TRUE(out.Flush().ok());
    ReadAll(in, 16);
  }
  ASSERT_EQ(received_.size(), 50u);
  for (size_t i = 0; i < 50; ++i) {
    EXPECT_EQ(received_[i].bytes, std::to_string(i));
    EXPECT_EQ(received_[i].descriptor.valid(), i % 5 == 0) << i;
  }
}

TEST_F(FrameChannelTest, ADescriptorBelongsToTheLastFrameOfItsMessage) {
  FrameChannel in(std::move(pair_.second), 1 << 20);
  const UniqueFd file = Memfd();
  SendRaw(pair_.first.get(), EncodePayload("a") + EncodePayload("b"), {file.get()});
  ReadAll(in);
  ASSERT_EQ(received_.size(), 2u);
  EXPECT_FALSE(received_[0].descriptor.valid());
  EXPECT_TRUE(received_[1].descriptor.valid());
}

TEST_F(FrameChannelTest, ADescriptorInTheMiddleOfAFrameIsAProtocolError) {
  FrameChannel in(std::move(pair_.second), 1 << 20);
  const std::string frame = EncodePayload("payload");
  const UniqueFd file = Memfd();
  SendRaw(pair_.first.get(), frame.substr(0, 6), {});
  ReadAll(in);
  SendRaw(pair_.first.get(), frame.substr(6), {file.get()});
  std::vector<std::byte> buffer(64);
  const auto end = in.Read(buffer, 10, [](std::string_view, UniqueFd descriptor) { return !descriptor.valid(); });
  EXPECT_EQ(ReasonOf(end.status()), Reason::kProtocolError);
}

TEST_F(FrameChannelTest, TwoDescriptorsAreAProtocolErrorAndLeakNothing) {
  FrameChannel in(std::move(pair_.second), 1 << 20);
  const UniqueFd file = Memfd();
  const int lowest_free = UniqueFd(sys::Fcntl(file.get(), F_DUPFD_CLOEXEC, 0)).get();
  SendRaw(pair_.first.get(), EncodePayload("x"), {file.get(), file.get()});
  std::vector<std::byte> buffer(64);
  const auto end = in.Read(buffer, 10, [](std::string_view, UniqueFd) { return true; });
  EXPECT_EQ(ReasonOf(end.status()), Reason::kProtocolError);
  EXPECT_EQ(UniqueFd(sys::Fcntl(file.get(), F_DUPFD_CLOEXEC, 0)).get(), lowest_free);
}

TEST_F(FrameChannelTest, TheEndInsideAFrameIsAProtocolErrorAndBetweenFramesAnEnd) {
  FrameChannel in(std::move(pair_.second), 1 << 20);
  SendRaw(pair_.first.get(), EncodePayload("whole"), {});
  pair_.first.Reset();
  EXPECT_EQ(ReadAll(in), FrameChannel::ReadEnd::kEof);
  EXPECT_EQ(received_.size(), 1u);

  SocketPair other;
  FrameChannel cut(std::move(other.second), 1 << 20);
  SendRaw(other.first.get(), "\x05", {});
  other.first.Reset();
  std::vector<std::byte> buffer(64);
  const auto end = cut.Read(buffer, 10, [](std::string_view, UniqueFd) { return true; });
  EXPECT_EQ(ReasonOf(end.status()), Reason::kProtocolError);
}

TEST_F(FrameChannelTest, WritingToAPeerThatIsGoneIsConnectionLost) {
  FrameChannel out(std::move(pair_.first), 1 << 20);
  pair_.second.Reset();
  out.Queue(EncodePayload("x"));
  EXPECT_EQ(ReasonOf(out.Flush()), Reason::kConnectionLost);
  EXPECT_EQ(out.queued_bytes(), 0u);
}

}  // namespace
}  // namespace bulkhead::ipc
