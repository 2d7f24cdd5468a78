#include "ipc/frame_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bulkhead/v1/client.pb.h"
#include "ipc/frame.h"
#include "tests/ipc/socket_pair.h"

namespace bulkhead::ipc {
namespace {

struct Recorder : FrameSocket::Listener {
  void OnFrame(std::string_view bytes, UniqueFd descriptor) override {
    frames.emplace_back(bytes);
    if (descriptor.valid()) descriptors.push_back(std::move(descriptor));
    if (on_frame) on_frame();
  }
  void OnClosed(const absl::Status& why) override {
    closed = why;
    if (on_closed) on_closed();
  }
  void OnCongested(bool congested) override { congestion.push_back(congested); }
  void OnFlushed() override { ++flushed; }

  std::vector<std::string> frames;
  std::vector<UniqueFd> descriptors;
  std::optional<absl::Status> closed;
  std::vector<bool> congestion;
  int flushed = 0;
  std::function<void()> on_frame;
  std::function<void()> on_closed;
};

class FrameSocketTest : public testing::Test {
 protected:
  FrameSocketTest() { uv_loop_init(&uv_); }
  ~FrameSocketTest() override {
    a_.reset();
    b_.reset();
    Turn();
    EXPECT_EQ(uv_loop_close(&uv_), 0) << "a handle was left open";
    sys::SetFaultHook(nullptr);
  }

  // Runs the loop for a bounded number of turns, or until `done`.
  void Turn(const std::function<bool()>& done = [] { return false; }) {
    for (int i = 0; i < 2000 && !done(); ++i) uv_run(&uv_, UV_RUN_NOWAIT);
  }
  std::unique_ptr<FrameSocket> Make(UniqueFd fd, Recorder& recorder, FrameSocket::Options options = {}) {
    auto made = FrameSocket::Create(loop_, std::move(fd), options, &recorder);
    EXPECT_TRUE(made.ok());
    return std::move(made).value();
  }

  uv_loop_t uv_ = {};
  SocketLoop loop_{&uv_};
  SocketPair pair_;
  Recorder at_a_;
  Recorder at_b_;
  std::unique_ptr<FrameSocket> a_;
  std::unique_ptr<FrameSocket> b_;
};

TEST_F(FrameSocketTest, CarriesFramesAndADescriptorInOrder) {
  a_ = Make(std::move(pair_.first), at_a_);
  b_ = Make(std::move(pair_.second), at_b_);
  v1::ClientFrame frame;
  frame.set_request_id(5);
  ASSERT_TRUE(a_->Send(frame).ok());
  ASSERT_TRUE(a_->SendEncoded(EncodePayload("with"), Memfd()).ok());
  ASSERT_TRUE(a_->SendEncoded(EncodePayload("last")).ok());
  Turn([&] { return at_b_.frames.size() == 3; });
  EXPECT_EQ(at_b_.frames, (std::vector<std::string>{frame.SerializeAsString(), "with", "last"}));
  EXPECT_EQ(at_b_.descriptors.size(), 1u);
}

TEST_F(FrameSocketTest, TellsCongestionAtBothMarksOnceAndDeliversEverything) {
  a_ = Make(std::move(pair_.first), at_a_);
  const std::string payload(100000, 'p');
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(a_->SendEncoded(EncodePayload(payload)).ok());
  EXPECT_TRUE(a_->congested());
  EXPECT_EQ(at_a_.congestion, std::vector<bool>{true});
  EXPECT_GT(a_->queued_bytes(), kOutputHighWater);
  b_ = Make(std::move(pair_.second), at_b_);
  Turn([&] { return at_b_.frames.size() == 20 && !a_->congested(); });
  EXPECT_EQ(at_b_.frames.size(), 20u);
  EXPECT_EQ(at_a_.congestion, (std::vector<bool>{true, false}));
  EXPECT_EQ(a_->queued_bytes(), 0u);
  EXPECT_EQ(at_a_.flushed, 1);
}

TEST_F(FrameSocketTest, WhatNeedNotWaitIsNotToldAsFlushed) {
  a_ = Make(std::move(pair_.first), at_a_);
  b_ = Make(std::move(pair_.second), at_b_);
  ASSERT_TRUE(a_->SendEncoded(EncodePayload("short")).ok());
  Turn([&] { return at_b_.frames.size() == 1; });
  EXPECT_EQ(at_a_.flushed, 0);
}

TEST_F(FrameSocketTest, FailedByItsOwnerItEndsFromTheLoopWithThatReasonAndDropsWhatIsQueued) {
  a_ = Make(std::move(pair_.first), at_a_);
  ASSERT_EQ(sys::Send(pair_.second.get(), EncodePayload("arrived").data(), EncodePayload("arrived").size(), 0), 11);
  const std::string payload(100000, 'p');
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(a_->SendEncoded(EncodePayload(payload)).ok());
  a_->Fail(Error(Reason::kLimitExceeded, "too much unread"));
  EXPECT_FALSE(at_a_.closed.has_value()) << "told inside the call";
  EXPECT_FALSE(a_->SendEncoded(EncodePayload("more")).ok());
  Turn([&] { return at_a_.closed.has_value(); });
  ASSERT_TRUE(at_a_.closed.has_value());
  EXPECT_EQ(ReasonOf(*at_a_.closed), Reason::kLimitExceeded);
  EXPECT_EQ(at_a_.frames, std::vector<std::string>{"arrived"});
  EXPECT_EQ(at_a_.flushed, 0);
}

TEST_F(FrameSocketTest, ReadsWhatThePeerSentBeforeItHungUp) {
  FrameSocket::Options options;
  a_ = Make(std::move(pair_.first), at_a_);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(a_->SendEncoded(EncodePayload(std::string(20000, 'q'))).ok());
  a_.reset();
  Turn();
  b_ = Make(std::move(pair_.second), at_b_);
  Turn([&] { return at_b_.closed.has_value(); });
  EXPECT_EQ(at_b_.frames.size(), 5u);
  ASSERT_TRUE(at_b_.closed.has_value());
  EXPECT_TRUE(at_b_.closed->ok());
}

TEST_F(FrameSocketTest, ReadsWhatThePeerSentBeforeItResetTheConnection) {
  // A peer that closes with unread input makes the socket an errored one (POLLERR), with data still pending.
  b_ = Make(std::move(pair_.second), at_b_);
  ASSERT_TRUE(b_->SendEncoded(EncodePayload("never read")).ok());
  const std::string last = EncodePayload("last words");
  ASSERT_EQ(sys::Send(pair_.first.get(), last.data(), last.size(), 0), static_cast<ssize_t>(last.size()));
  pair_.first.Reset();
  Turn([&] { return at_b_.closed.has_value(); });
  EXPECT_EQ(at_b_.frames, std::vector<std::string>{"last words"});
  ASSERT_TRUE(at_b_.closed.has_value());
}

TEST_F(FrameSocketTest, ReadsTheAnswerOfAPeerThatCanNoLongerBeWrittenTo) {
  b_ = Make(std::move(pair_.second), at_b_);
  const std::string last = EncodePayload("answer");
  ASSERT_EQ(sys::Send(pair_.first.get(), last.data(), last.size(), 0), static_cast<ssize_t>(last.size()));
  pair_.first.Reset();
  EXPECT_FALSE(b_->SendEncoded(EncodePayload("x")).ok());
  EXPECT_FALSE(b_->open());
  Turn([&] { return at_b_.closed.has_value(); });
  EXPECT_EQ(at_b_.frames, std::vector<std::string>{"answer"});
  ASSERT_TRUE(at_b_.closed.has_value());
  EXPECT_EQ(ReasonOf(*at_b_.closed), Reason::kConnectionLost);
}

TEST_F(FrameSocketTest, AMalformedStreamEndsThisConnectionWithAReason) {
  b_ = Make(std::move(pair_.second), at_b_);
  const std::string rubbish = EncodePayload("good") + std::string("\xff\xff\xff\xff", 4);
  ASSERT_EQ(sys::Send(pair_.first.get(), rubbish.data(), rubbish.size(), 0), static_cast<ssize_t>(rubbish.size()));
  Turn([&] { return at_b_.closed.has_value(); });
  EXPECT_EQ(at_b_.frames, std::vector<std::string>{"good"});
  EXPECT_EQ(ReasonOf(*at_b_.closed), Reason::kFrameTooLarge);
}

TEST_F(FrameSocketTest, APeerThatNeverReadsIsDisconnectedAtTheLimit) {
  FrameSocket::Options options;
  options.max_queued_bytes = 1 << 20;
  a_ = Make(std::move(pair_.first), at_a_, options);
  absl::Status status;
  for (int i = 0; i < 1000 && status.ok(); ++i) status = a_->SendEncoded(EncodePayload(std::string(10000, 'r')));
  EXPECT_EQ(ReasonOf(status), Reason::kLimitExceeded);
  EXPECT_LE(a_->queued_bytes(), 1u << 20);
  Turn([&] { return at_a_.closed.has_value(); });
  EXPECT_EQ(ReasonOf(*at_a_.closed), Reason::kLimitExceeded);
}

TEST_F(FrameSocketTest, MayBeDestroyedInsideOnFrame) {
  b_ = Make(std::move(pair_.second), at_b_);
  at_b_.on_frame = [this] { b_.reset(); };
  const std::string two = EncodePayload("one") + EncodePayload("two");
  ASSERT_EQ(sys::Send(pair_.first.get(), two.data(), two.size(), 0), static_cast<ssize_t>(two.size()));
  Turn();
  EXPECT_EQ(at_b_.frames, std::vector<std::string>{"one"});
  EXPECT_FALSE(at_b_.closed.has_value());
}

TEST_F(FrameSocketTest, MayBeDestroyedInsideOnClosed) {
  b_ = Make(std::move(pair_.second), at_b_);
  at_b_.on_closed = [this] { b_.reset(); };
  pair_.first.Reset();
  Turn([&] { return at_b_.closed.has_value(); });
  EXPECT_EQ(b_, nullptr);
}

TEST_F(FrameSocketTest, TheDescriptorNumberComesBackOnlyAfterTheLoopClosedTheHandle) {
  a_ = Make(std::move(pair_.first), at_a_);
  const int number = a_->fd();
  a_->Close();
  EXPECT_GE(sys::Fcntl(number, F_GETFD), 0);
  EXPECT_EQ(a_->fd(), -1);
  Turn();
  EXPECT_EQ(sys::Fcntl(number, F_GETFD), -EBADF);
}

TEST_F(FrameSocketTest, CloseAfterFlushSendsWhatWasQueued) {
  a_ = Make(std::move(pair_.first), at_a_);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(a_->SendEncoded(EncodePayload(std::string(100000, 's'))).ok());
  ASSERT_GT(a_->queued_bytes(), 0u);
  a_->CloseAfterFlush();
  a_.reset();
  b_ = Make(std::move(pair_.second), at_b_);
  Turn([&] { return at_b_.closed.has_value(); });
  EXPECT_EQ(at_b_.frames.size(), 10u);
  EXPECT_TRUE(at_b_.closed->ok());
}

TEST_F(FrameSocketTest, CloseAfterFlushGivesUpOnAPeerThatNeverReads) {
  a_ = Make(std::move(pair_.first), at_a_);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(a_->SendEncoded(EncodePayload(std::string(100000, 't'))).ok());
  a_->CloseAfterFlush(1);
  a_.reset();
  EXPECT_EQ(uv_run(&uv_, UV_RUN_DEFAULT), 0);  // ends by its timer: no handle is left
}

TEST_F(FrameSocketTest, ReadAvailableDeliversWithoutALoopTurn) {
  b_ = Make(std::move(pair_.second), at_b_);
  const std::string frame = EncodePayload("done");
  ASSERT_EQ(sys::Send(pair_.first.get(), frame.data(), frame.size(), 0), static_cast<ssize_t>(frame.size()));
  pair_.first.Reset();
  b_->ReadAvailable(1 << 20);
  EXPECT_EQ(at_b_.frames, std::vector<std::string>{"done"});
  EXPECT_TRUE(at_b_.closed.has_value());
}

}  // namespace
}  // namespace bulkhead::ipc
