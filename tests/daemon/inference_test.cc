// Generations through a session: events, flow control, disconnecting, lingering, attaching.
#include <gmock/gmock.h>

#include <limits>

#include "tests/daemon/session_fixture.h"

namespace bulkhead::daemon {
namespace {

using ::testing::HasSubstr;

class InferenceTest : public SessionFixture {
 protected:
  v1::ClientFrame Lingering(uint64_t id) {
    v1::ClientFrame frame = Generate(id);
    frame.mutable_generate()->set_linger_ms(60'000);
    return frame;
  }
  v1::ClientFrame Attach(const std::string& inference, uint64_t from) {
    v1::ClientFrame frame;
    frame.set_request_id(9);
    frame.mutable_attach()->set_inference_id(inference);
    frame.mutable_attach()->set_from_index(from);
    return frame;
  }
  v1::ClientFrame Grant(uint64_t up_to) {
    v1::ClientFrame frame;
    frame.mutable_grant()->set_target_request_id(1);
    frame.mutable_grant()->set_up_to_index(up_to);
    return frame;
  }
  FakeOffload::Running& Running() { return offload_.running.at(offload_.last_id); }
};

TEST_F(InferenceTest, EventsArriveInOrderWithOneTerminalAndTheEchoedSeed) {
  auto client = Connect(kUser);
  Begin(*client, Generate(1));
  EXPECT_TRUE(Running().request.sampling.has_seed());
  offload_.sink().OnQueued({2, "WAITING_FOR_MEMORY"});
  offload_.sink().OnLoading({"weights", 1, 2});
  offload_.Started();
  offload_.Delta(0, "a");
  offload_.Done();
  EXPECT_EQ(Receive(*client).queued().position(), 2u);
  EXPECT_EQ(Receive(*client).loading().phase(), "weights");
  EXPECT_EQ(Receive(*client).started().seed(), 7u);
  EXPECT_EQ(Receive(*client).delta().text(), "a");
  EXPECT_EQ(Receive(*client).done().finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_TRUE(NothingComes(*client));
  EXPECT_EQ(inferences_->size(), 0u);
}

TEST_F(InferenceTest, SeedsChosenHereDiffer) {
  auto client = Connect(kUser);
  Begin(*client, Generate(1));
  const uint64_t first = Running().request.sampling.seed();
  Begin(*client, Generate(2));
  EXPECT_NE(first, Running().request.sampling.seed());
}

TEST_F(InferenceTest, ARequestThatMakesNoSenseIsRefusedWithoutQuotingIt) {
  auto client = Connect(kUser);
  v1::ClientFrame frame = Generate(1, "CANARY");
  frame.mutable_generate()->mutable_sampling()->set_temperature(-1);
  Send(*client, frame);
  EXPECT_THAT(Receive(*client).error().message(), HasSubstr("sampling.temperature: -1"));
  frame.mutable_generate()->mutable_sampling()->set_temperature(std::numeric_limits<float>::quiet_NaN());
  Send(*client, frame);
  EXPECT_EQ(Receive(*client).error().reason(), v1::REASON_INVALID_REQUEST);
  frame.mutable_generate()->clear_sampling();
  frame.mutable_generate()->mutable_sampling()->add_stop(std::string(257, 's'));
  Send(*client, frame);
  const v1::ServerFrame refused = Receive(*client);
  EXPECT_THAT(refused.error().message(), HasSubstr("257 bytes"));
  EXPECT_THAT(refused.error().message(), ::testing::Not(HasSubstr("ssss")));
  frame.mutable_generate()->clear_sampling();
  frame.mutable_generate()->clear_prompt();
  Send(*client, frame);
  EXPECT_THAT(Receive(*client).error().message(), HasSubstr("input"));
  EXPECT_TRUE(offload_.running.empty());
}

TEST_F(InferenceTest, AnUnknownModelIsNotFoundWithTheNextCommandToTry) {
  auto client = Connect(kUser);
  v1::ClientFrame frame = Generate(1);
  frame.mutable_generate()->mutable_model()->set_name("nonesuch");
  Send(*client, frame);
  const v1::ErrorEvent error = Receive(*client).error();
  EXPECT_EQ(error.reason(), v1::REASON_MODEL_NOT_FOUND);
  EXPECT_EQ(error.hint(), "bulkhead models");
}

TEST_F(InferenceTest, ADisconnectedClientsWorkIsCancelled) {
  auto client = Connect(kUser);
  Begin(*client, Generate(1));
  client.reset();
  ASSERT_TRUE(loop_.RunUntil([&] { return sessions_.empty(); }));
  EXPECT_EQ(Running().cancelled, supervisor::CancelCause::kClientGone);
  offload_.Done(v1::FINISH_REASON_CANCELLED);
  EXPECT_EQ(inferences_->size(), 0u);
  EXPECT_EQ(uids_.Held(kUser, UidResource::kInFlight), 0u);
}

TEST_F(InferenceTest, CancelOnTheOwnConnectionIsTheOwners) {
  auto client = Connect(kUser);
  Begin(*client, Generate(1));
  v1::ClientFrame cancel;
  cancel.set_request_id(2);
  cancel.mutable_cancel()->set_target_request_id(1);
  Send(*client, cancel);
  EXPECT_TRUE(Receive(*client).cancel().found());
  EXPECT_EQ(Running().cancelled, supervisor::CancelCause::kOwner);
  offload_.Done(v1::FINISH_REASON_CANCELLED);
  EXPECT_EQ(Receive(*client).done().finish_reason(), v1::FINISH_REASON_CANCELLED);
}

TEST_F(InferenceTest, ASlowReadersSequenceIsPausedAndResumed) {
  auto client = Connect(kUser);
  Begin(*client, Generate(1));
  offload_.Started();
  const std::string chunk(32 << 10, 'x');
  uint64_t sent = 0;
  while (!Running().paused && sent < 200) offload_.Delta(sent++, chunk);
  ASSERT_TRUE(Running().paused) << "never paused after " << sent;
  // What comes in spite of the pause is kept and delivered in order.
  for (int i = 0; i < 3; ++i) offload_.Delta(sent++, chunk);
  EXPECT_TRUE(Receive(*client).has_started());
  for (uint64_t index = 0; index < sent; ++index) {
    const v1::ServerFrame frame = Receive(*client);
    ASSERT_TRUE(frame.has_delta());
    EXPECT_EQ(frame.delta().index(), index);
  }
  EXPECT_FALSE(Running().paused);
}

TEST_F(InferenceTest, AnotherClientsStreamIsNotPausedByASlowReader) {
  auto slow = Connect(kUser);
  Begin(*slow, Generate(1));
  const std::string slow_id = offload_.last_id;
  auto quick = Connect(kUser);
  Begin(*quick, Generate(1));
  const std::string quick_id = offload_.last_id;
  offload_.last_id = slow_id;
  for (uint64_t i = 0; i < 100 && !Running().paused; ++i) offload_.Delta(i, std::string(32 << 10, 'x'));
  EXPECT_TRUE(Running().paused);
  EXPECT_FALSE(offload_.running.at(quick_id).paused);
}

TEST_F(InferenceTest, NoDeltaBeyondTheGrantIsSent) {
  auto client = Connect(kUser);
  Begin(*client, Generate(1));
  offload_.Started();
  EXPECT_TRUE(Receive(*client).has_started());
  Send(*client, Grant(2));
  loop_.RunReady();
  for (uint64_t i = 0; i < 4; ++i) offload_.Delta(i, "t");
  EXPECT_TRUE(Running().paused);
  EXPECT_EQ(Receive(*client).delta().index(), 0u);
  EXPECT_EQ(Receive(*client).delta().index(), 1u);
  EXPECT_TRUE(NothingComes(*client));
  offload_.Done();
  EXPECT_TRUE(NothingComes(*client)) << "the end came before the text";
  Send(*client, Grant(9));
  EXPECT_EQ(Receive(*client).delta().index(), 2u);
  EXPECT_EQ(Receive(*client).delta().index(), 3u);
  EXPECT_TRUE(Receive(*client).has_done());
}

TEST_F(InferenceTest, AnErrorNeedsNoGrant) {
  auto client = Connect(kUser);
  Begin(*client, Generate(1));
  Send(*client, Grant(0));
  loop_.RunReady();
  offload_.Delta(0, "withheld");
  offload_.sink().OnError(supervisor::OffloadError::Of(Reason::kClientStalled, "too slow"));
  EXPECT_EQ(Receive(*client).error().reason(), v1::REASON_CLIENT_STALLED);
}

TEST_F(InferenceTest, ALingeringInferenceGoesOnAndCanBeAttachedTo) {
  auto first = Connect(kUser);
  Begin(*first, Lingering(1));
  const std::string id = offload_.last_id;
  offload_.Started();
  offload_.Delta(0, "zero");
  first.reset();
  ASSERT_TRUE(loop_.RunUntil([&] { return sessions_.empty(); }));
  EXPECT_FALSE(Running().cancelled.has_value());
  offload_.Delta(1, "one");
  auto second = Connect(kUser);
  Send(*second, Attach(id, 1));
  EXPECT_EQ(Receive(*second).started().inference_id(), id);
  EXPECT_EQ(Receive(*second).delta().text(), "one");
  offload_.Delta(2, "two");
  EXPECT_EQ(Receive(*second).delta().text(), "two");
  offload_.Done();
  EXPECT_TRUE(Receive(*second).has_done());
}

TEST_F(InferenceTest, AnEndMissedByItsClientIsStillThereToAttachTo) {
  auto first = Connect(kUser);
  Begin(*first, Lingering(1));
  const std::string id = offload_.last_id;
  first.reset();
  ASSERT_TRUE(loop_.RunUntil([&] { return sessions_.empty(); }));
  offload_.Started();
  offload_.Delta(0, "all");
  offload_.Done();
  auto second = Connect(kUser);
  Send(*second, Attach(id, 0));
  EXPECT_TRUE(Receive(*second).has_started());
  EXPECT_EQ(Receive(*second).delta().text(), "all");
  EXPECT_TRUE(Receive(*second).has_done());
}

TEST_F(InferenceTest, AnotherUserCannotAttach) {
  auto owner = Connect(kUser);
  Begin(*owner, Lingering(1));
  for (const uid_t uid : {kOther, uid_t{0}}) {
    auto other = Connect(uid);
    Send(*other, Attach(offload_.last_id, 0));
    EXPECT_EQ(Receive(*other).error().reason(), v1::REASON_INFERENCE_NOT_FOUND);
  }
}

TEST_F(InferenceTest, ANewListenerReplacesTheOld) {
  auto first = Connect(kUser);
  Begin(*first, Lingering(1));
  auto second = Connect(kUser);
  Send(*second, Attach(offload_.last_id, 0));
  EXPECT_EQ(Receive(*first).error().reason(), v1::REASON_CANCELLED);
  EXPECT_FALSE(Running().cancelled.has_value());
  offload_.Delta(0, "x");
  EXPECT_EQ(Receive(*second).delta().text(), "x");
}

TEST_F(InferenceTest, NobodyComingBackInTimeCancels) {
  auto client = Connect(kUser);
  Begin(*client, Lingering(1));
  client.reset();
  ASSERT_TRUE(loop_.RunUntil([&] { return sessions_.empty(); }));
  clock_.Advance(std::chrono::seconds(59));
  inferences_->ExpireDue();
  EXPECT_FALSE(Running().cancelled.has_value());
  clock_.Advance(std::chrono::seconds(2));
  inferences_->ExpireDue();
  EXPECT_EQ(Running().cancelled, supervisor::CancelCause::kClientGone);
  EXPECT_EQ(inferences_->size(), 0u);
}

TEST_F(InferenceTest, WhatALingeringInferenceKeepsIsBounded) {
  auto client = Connect(kUser);
  Begin(*client, Lingering(1));
  const std::string id = offload_.last_id;
  offload_.Started();
  client.reset();
  ASSERT_TRUE(loop_.RunUntil([&] { return sessions_.empty(); }));
  uint64_t sent = 0;
  while (!Running().paused && sent < 1000) offload_.Delta(sent++, std::string(64 << 10, 'x'));
  EXPECT_TRUE(Running().paused);
  EXPECT_LE(sent, 70u);
  auto again = Connect(kUser);
  Send(*again, Attach(id, 0));
  EXPECT_TRUE(Receive(*again).has_started());
  for (uint64_t i = 0; i < sent; ++i) ASSERT_EQ(Receive(*again).delta().index(), i);
  EXPECT_FALSE(Running().paused);
}

TEST_F(InferenceTest, TheSameIdempotencyKeyListensToTheSameInference) {
  v1::ClientFrame frame = Lingering(1);
  frame.mutable_generate()->set_idempotency_key("once");
  auto first = Connect(kUser);
  Begin(*first, frame);
  first.reset();
  ASSERT_TRUE(loop_.RunUntil([&] { return sessions_.empty(); }));
  auto second = Connect(kUser);
  Send(*second, frame);
  loop_.RunReady();
  EXPECT_EQ(offload_.running.size(), 1u);
  offload_.Delta(0, "same");
  EXPECT_EQ(Receive(*second).delta().text(), "same");
}

TEST_F(InferenceTest, ARepeatWhileTheFirstIsStillBeingLookedUpJoinsIt) {
  v1::ClientFrame frame = Generate(1);
  frame.mutable_generate()->set_idempotency_key("once");
  auto first = Connect(kUser), second = Connect(kUser);
  Send(*first, frame);
  Send(*second, frame);
  ASSERT_TRUE(loop_.RunUntil([&] { return !offload_.running.empty(); }));
  offload_.Delta(0, "same");
  EXPECT_EQ(Receive(*first).error().reason(), v1::REASON_CANCELLED);  // replaced by the second
  EXPECT_EQ(Receive(*second).delta().text(), "same");
  EXPECT_EQ(offload_.running.size(), 1u);
}

TEST_F(InferenceTest, AKeyWhoseFirstRequestFailedIsFreeForTheNext) {
  v1::ClientFrame frame = Generate(1);
  frame.mutable_generate()->mutable_model()->set_name("later");
  frame.mutable_generate()->set_idempotency_key("once");
  auto first = Connect(kUser);
  Send(*first, frame);
  EXPECT_EQ(Receive(*first).error().reason(), v1::REASON_MODEL_NOT_FOUND);
  std::ofstream(directory_ / "later.gguf") << "weights";
  frame.set_request_id(2);
  Begin(*first, frame);
  EXPECT_EQ(offload_.running.size(), 1u);
}

TEST_F(InferenceTest, AKeyAloneKeepsTheAnswerForARepeatAfterTheEnd) {
  v1::ClientFrame frame = Generate(1);
  frame.mutable_generate()->set_idempotency_key("once");
  auto client = Connect(kUser);
  Begin(*client, frame);
  offload_.Started();
  offload_.Delta(0, "all");
  offload_.Done();
  for (const bool repeated : {false, true}) {
    if (repeated) Send(*client, frame);
    EXPECT_TRUE(Receive(*client).has_started());
    EXPECT_EQ(Receive(*client).delta().text(), "all");
    EXPECT_TRUE(Receive(*client).has_done());
  }
  clock_.Advance(control_.config.config.limits.idempotency + std::chrono::seconds(1));
  inferences_->ExpireDue();
  Begin(*client, frame);
  EXPECT_EQ(offload_.running.size(), 1u);
}

TEST_F(InferenceTest, AKeyIsOneUsersAndOneRequests) {
  v1::ClientFrame frame = Generate(1);
  frame.mutable_generate()->set_idempotency_key("once");
  auto mine = Connect(kUser), others = Connect(kOther);
  Begin(*mine, frame);
  Begin(*others, frame);
  EXPECT_EQ(offload_.running.size(), 2u);
  v1::ClientFrame different = Generate(2, "something else");
  different.mutable_generate()->set_idempotency_key("once");
  Send(*mine, different);
  const v1::ServerFrame refused = Receive(*mine);
  EXPECT_EQ(refused.error().reason(), v1::REASON_INVALID_REQUEST);
  EXPECT_THAT(refused.error().message(), HasSubstr("idempotency_key"));
}

TEST_F(InferenceTest, WhatOneUsersEndedInferencesKeepIsBounded) {
  auto client = Connect(kUser);
  for (size_t i = 0; i < InferenceTable::kMaxKept + 10; ++i) {
    Begin(*client, Lingering(i + 1));
    offload_.Done();
    ASSERT_TRUE(Receive(*client).has_done());
  }
  EXPECT_EQ(inferences_->size(), InferenceTable::kMaxKept);
}

TEST_F(InferenceTest, AUserWithMuchUnreadOnOneConnectionIsPausedOnTheOthers) {
  control_.config.config.limits.queued_bytes_per_uid = 1 << 20;
  std::vector<std::unique_ptr<Client>> deaf;
  uint64_t held = 0;
  for (int i = 0; i < 8 && held <= (512 << 10); ++i) {
    deaf.push_back(Connect(kUser));
    Begin(*deaf.back(), Generate(1));
    for (uint64_t n = 0; n < 200 && !Running().paused; ++n) offload_.Delta(n, std::string(32 << 10, 'x'));
    held = uids_.Held(kUser, UidResource::kQueuedBytes);
  }
  ASSERT_GT(held, 512u << 10);
  // With the user's half used up the next one pauses as soon as anything waits for it.
  auto late = Connect(kUser);
  Begin(*late, Generate(1));
  uint64_t sent = 0;
  while (!Running().paused && sent < 2000) offload_.Delta(sent++, std::string(1 << 10, 'x'));
  EXPECT_TRUE(Running().paused);
  EXPECT_LE(uids_.Held(kUser, UidResource::kQueuedBytes), 1u << 20);
  for (uint64_t index = 0; index < sent; ++index) ASSERT_EQ(Receive(*late).delta().index(), index);
  EXPECT_FALSE(Running().paused);
  EXPECT_EQ(deaf.size(), sessions_.size() - 1) << "a connection was ended though its sequence could pause";
}

TEST_F(InferenceTest, ACancelWhileTheModelIsLookedUpIsAnswered) {
  auto client = Connect(kUser);
  v1::ClientFrame cancel;
  cancel.set_request_id(2);
  cancel.mutable_cancel()->set_target_request_id(1);
  Send(*client, Generate(1));
  Send(*client, cancel);
  EXPECT_EQ(Receive(*client).done().finish_reason(), v1::FINISH_REASON_CANCELLED);
  EXPECT_TRUE(Receive(*client).cancel().found());
  loop_.RunReady();
  EXPECT_TRUE(offload_.running.empty());
}

}  // namespace
}  // namespace bulkhead::daemon
