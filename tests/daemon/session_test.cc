// Connections, rights and limits.
#include "daemon/session.h"

#include <fcntl.h>
#include <gmock/gmock.h>

#include <atomic>
#include <cerrno>

#include "daemon/server.h"
#include "ipc/unix_address.h"
#include "tests/daemon/session_fixture.h"

namespace bulkhead::daemon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SessionTest : public SessionFixture {
 protected:
  v1::ServerFrame Ask(Client& client, v1::ClientFrame frame, uint64_t id = 1) {
    frame.set_request_id(id);
    Send(client, frame);
    return Receive(client);
  }
};

TEST_F(SessionTest, HelloIsAnsweredWithWhatThisDaemonIs) {
  auto client = ConnectRaw(kUser);
  v1::ClientFrame hello;
  hello.mutable_hello()->set_protocol_max(9);
  Send(*client, hello);
  const v1::ServerFrame reply = Receive(*client);
  EXPECT_EQ(reply.request_id(), 0u);
  EXPECT_EQ(reply.hello().protocol_max(), kProtocolVersion);
  EXPECT_EQ(reply.hello().degraded(), "no cgroup");
  EXPECT_GT(reply.hello().numerics(), 0u);
}

TEST_F(SessionTest, VersionsThatDoNotOverlapEndTheConnectionWithAReason) {
  auto client = ConnectRaw(kUser);
  v1::ClientFrame hello;
  hello.mutable_hello()->set_protocol_min(7);
  hello.mutable_hello()->set_protocol_max(9);
  Send(*client, hello);
  EXPECT_TRUE(Receive(*client).has_hello());
  EXPECT_EQ(Receive(*client).error().reason(), v1::REASON_PROTOCOL_ERROR);
  EXPECT_TRUE(Ended(*client));
}

TEST_F(SessionTest, ARequestBeforeHelloEndsTheConnectionWithAReason) {
  auto client = ConnectRaw(kUser);
  Send(*client, Generate(1));
  EXPECT_THAT(Receive(*client).error().message(), HasSubstr("Hello"));
  EXPECT_TRUE(Ended(*client));
}

TEST_F(SessionTest, RubbishEndsItsConnectionWithAReasonAndNoOther) {
  auto good = Connect(kUser);
  Begin(*good, Generate(1));
  offload_.Started();
  EXPECT_TRUE(Receive(*good).has_started());
  const std::vector<std::string> rubbish = {
      std::string("\x05\0\0\0\xff\xff\xff\xff\xff", 9),  // not a message
      std::string("\0\0\0\0", 4),                        // empty frame
      std::string("\xff\xff\xff\xff", 4),                // giant length
      "GET / HTTP/1.1\r\n\r\n",
  };
  for (const std::string& bytes : rubbish) {
    auto bad = Connect(kUser);
    ASSERT_TRUE(bad->SendEncoded(bytes, std::chrono::seconds(1)).ok());
    const v1::ServerFrame reply = Receive(*bad);
    EXPECT_EQ(reply.request_id(), 0u);
    EXPECT_TRUE(reply.has_error()) << reply.ShortDebugString();
    EXPECT_TRUE(Ended(*bad));
  }
  offload_.Delta(0, "still here");
  EXPECT_EQ(Receive(*good).delta().text(), "still here");
  EXPECT_EQ(sessions_.size(), 1u);
}

TEST_F(SessionTest, AnUnknownKindIsUnimplementedOnThatRequestAlone) {
  auto client = Connect(kUser);
  v1::ClientFrame unknown;
  const v1::ServerFrame reply = Ask(*client, unknown, 77);
  EXPECT_EQ(reply.request_id(), 77u);
  EXPECT_EQ(reply.error().reason(), v1::REASON_UNIMPLEMENTED);
  v1::ClientFrame ps;
  ps.mutable_ps();
  EXPECT_TRUE(Ask(*client, ps, 78).has_ps());
}

TEST_F(SessionTest, RequestIdZeroAndAnOpenIdEndTheConnection) {
  auto client = Connect(kUser);
  v1::ClientFrame ps;
  ps.mutable_ps();
  Send(*client, ps);
  EXPECT_EQ(Receive(*client).error().reason(), v1::REASON_PROTOCOL_ERROR);
  auto twice = Connect(kUser);
  Begin(*twice, Generate(5));
  Send(*twice, Generate(5));
  EXPECT_EQ(Receive(*twice).error().reason(), v1::REASON_PROTOCOL_ERROR);
  EXPECT_TRUE(Ended(*twice));
}

TEST_F(SessionTest, ReleasePolicyReloadAndUnblockNeedAnAdministrator) {
  v1::ClientFrame release, policy, reload, unblock, pin;
  release.mutable_release()->add_models("demo");
  (*policy.mutable_policy()->mutable_set())["queue.total"] = "99";
  reload.mutable_reload();
  unblock.mutable_unblock()->set_model("demo");
  pin.mutable_load()->mutable_model()->set_name("demo");
  pin.mutable_load()->set_pin(true);
  auto user = Connect(kUser);
  for (const auto& frame : {release, policy, reload, unblock, pin}) {
    EXPECT_EQ(Ask(*user, frame).error().reason(), v1::REASON_PERMISSION_DENIED) << frame.ShortDebugString();
  }
  EXPECT_TRUE(offload_.released.empty());
  for (auto& admin : {std::pair<uid_t, std::vector<gid_t>>{0, {}}, {999, {}}, {kUser, {50}}}) {
    auto client = Connect(admin.first, admin.second);
    EXPECT_THAT(Ask(*client, release).release().released(), ElementsAre("demo"));
    EXPECT_EQ(Ask(*client, reload).reload().generation(), 4u);
  }
}

TEST_F(SessionTest, AUserReleasesItsOwnPassedModelOnly) {
  auto user = Connect(kUser);
  v1::ClientFrame release;
  release.mutable_release()->add_models("fd:1000:00ff");
  EXPECT_TRUE(Ask(*user, release).has_release());
  release.mutable_release()->add_models("fd:10001:00ff");
  EXPECT_EQ(Ask(*user, release).error().reason(), v1::REASON_PERMISSION_DENIED);
}

TEST_F(SessionTest, ReleaseSortsModelsByWhatBecameOfThem) {
  auto admin = Connect(0);
  v1::ClientFrame release;
  for (const char* name : {"demo", "absent", "stuck"}) release.mutable_release()->add_models(name);
  const v1::ReleaseReply reply = Ask(*admin, release).release();
  EXPECT_THAT(reply.released(), ElementsAre("demo"));
  EXPECT_THAT(reply.not_resident(), ElementsAre("absent"));
  EXPECT_THAT(reply.unconfirmed(), ElementsAre("stuck"));
}

TEST_F(SessionTest, PsShowsOthersRequestsAndPassedModelsToAdministratorsOnly) {
  offload_.resident.resize(2);
  offload_.resident[0].model = "demo";
  offload_.resident[1].model = "fd:1001:00ff";
  auto other = Connect(kOther);
  Begin(*other, Generate(1));
  v1::ClientFrame ps;
  ps.mutable_ps()->set_requests(true);
  auto user = Connect(kUser);
  const v1::PsReply seen = Ask(*user, ps).ps();
  EXPECT_EQ(seen.models_size(), 1);
  EXPECT_EQ(seen.requests_size(), 0);
  auto root = Connect(0);
  const v1::PsReply all = Ask(*root, ps).ps();
  EXPECT_EQ(all.models_size(), 2);
  EXPECT_EQ(all.requests_size(), 1);
}

TEST_F(SessionTest, LastWordsOfWorkersAreForAdministrators) {
  offload_.deaths.resize(3);
  for (uint64_t i = 0; i < 3; ++i) {
    offload_.deaths[i].set_death_id(i + 1);
    offload_.deaths[i].set_stderr_tail("somebody's prompt");
  }
  v1::ClientFrame deaths;
  deaths.mutable_deaths()->set_last(2);
  auto user = Connect(kUser);
  const v1::DeathsReply seen = Ask(*user, deaths).deaths();
  ASSERT_EQ(seen.deaths_size(), 2);
  EXPECT_EQ(seen.deaths(0).death_id(), 2u);
  EXPECT_EQ(seen.deaths(0).stderr_tail(), "");
  auto root = Connect(0);
  EXPECT_EQ(Ask(*root, deaths).deaths().deaths(0).stderr_tail(), "somebody's prompt");
}

TEST_F(SessionTest, CancelAndTerminateOfAnothersInferenceAreDenied) {
  auto owner = Connect(kUser);
  Begin(*owner, Generate(1));
  const std::string id = offload_.last_id;
  v1::ClientFrame cancel, terminate;
  cancel.mutable_cancel()->set_inference_id(id);
  terminate.mutable_terminate()->set_inference_id(id);
  auto other = Connect(kOther);
  EXPECT_EQ(Ask(*other, cancel).error().reason(), v1::REASON_PERMISSION_DENIED);
  EXPECT_EQ(Ask(*other, terminate).error().reason(), v1::REASON_PERMISSION_DENIED);
  EXPECT_FALSE(offload_.running.at(id).cancelled.has_value());
  EXPECT_TRUE(offload_.terminated.empty());
  auto root = Connect(0);
  EXPECT_TRUE(Ask(*root, cancel).cancel().found());
  EXPECT_EQ(offload_.running.at(id).cancelled, supervisor::CancelCause::kOther);
}

TEST_F(SessionTest, TerminateOfASharedProcessIsDeniedToUsers) {
  auto owner = Connect(kUser);
  Begin(*owner, Generate(1));
  offload_.others = {kUser, kOther};
  v1::ClientFrame terminate;
  terminate.mutable_terminate()->set_inference_id(offload_.last_id);
  EXPECT_EQ(Ask(*owner, terminate, 2).error().reason(), v1::REASON_PERMISSION_DENIED);
  offload_.others = {kUser};
  EXPECT_EQ(Ask(*owner, terminate, 2).terminate().ack(), v1::TerminateReply::CONFIRMED);
}

TEST_F(SessionTest, PassedDescriptorsAreCheckedAndNamedByUser) {
  const std::string path = directory_ / "demo.gguf";
  v1::ClientFrame frame = Generate(1);
  frame.mutable_generate()->mutable_model()->set_passed(true);
  auto client = Connect(kUser);
  EXPECT_THAT(Ask(*client, frame).error().message(), HasSubstr("no descriptor"));
  Send(*client, frame, UniqueFd(sys::Open(path.c_str(), O_RDWR)));
  EXPECT_THAT(Receive(*client).error().message(), HasSubstr("reading only"));
  const size_t before = offload_.running.size();
  Send(*client, frame, UniqueFd(sys::Open(path.c_str(), O_RDONLY)));
  ASSERT_TRUE(loop_.RunUntil([&] { return offload_.running.size() > before; }));
  const supervisor::ModelSource& model = offload_.running.at(offload_.last_id).request.model;
  EXPECT_TRUE(model.passed);
  EXPECT_EQ(model.uid, kUser);
  EXPECT_THAT(model.name, ::testing::StartsWith("fd:1000:"));
}

TEST_F(SessionTest, RequestsInFlightAreLimitedPerUserAndGivenBack) {
  control_.config.config.limits.in_flight_per_uid = 2;
  auto client = Connect(kUser);
  Begin(*client, Generate(1));
  Begin(*client, Generate(2));
  const v1::ServerFrame refused = Ask(*client, Generate(3), 3);
  EXPECT_EQ(refused.error().reason(), v1::REASON_LIMIT_EXCEEDED);
  auto other = Connect(kOther);
  Begin(*other, Generate(1));
  offload_.Done();
  EXPECT_TRUE(Receive(*other).has_done());
  client.reset();
  ASSERT_TRUE(loop_.RunUntil([&] { return sessions_.size() == 1; }));
  for (auto& [id, running] : offload_.running) running.sink->OnDone({});
  EXPECT_EQ(uids_.Held(kUser, UidResource::kInFlight), 0u);
}

TEST_F(SessionTest, UnfinishedFramesAreLimitedPerUser) {
  control_.config.config.limits.received_bytes_per_uid = 64 << 10;
  auto client = Connect(kUser);
  const std::string start = std::string("\0\0\x80\0", 4) + std::string(100 << 10, 'x');
  ASSERT_TRUE(client->SendEncoded(start, std::chrono::seconds(1)).ok());
  EXPECT_EQ(Receive(*client).error().reason(), v1::REASON_LIMIT_EXCEEDED);
  EXPECT_TRUE(Ended(*client));
  EXPECT_EQ(uids_.Held(kUser, UidResource::kReceivedBytes), 0u);
}

TEST_F(SessionTest, PolicyShowsValuesWithTheirOriginAndKeepsTheOldOnAnError) {
  auto root = Connect(0);
  v1::ClientFrame policy;
  (*policy.mutable_policy()->mutable_set())["queue.total"] = "0";
  EXPECT_EQ(Ask(*root, policy).error().reason(), v1::REASON_INVALID_REQUEST);
  (*policy.mutable_policy()->mutable_set())["queue.total"] = "99";
  const v1::PolicyReply reply = Ask(*root, policy).policy();
  for (const v1::PolicyValue& value : reply.values()) {
    if (value.name() != "queue.total") continue;
    EXPECT_EQ(value.value(), "99");
    EXPECT_EQ(value.origin(), "runtime uid 0");
  }
}

TEST_F(SessionTest, WhatWaitsToBeReadIsLimitedPerUser) {
  control_.config.config.limits.queued_bytes_per_uid = 1 << 20;
  for (int i = 0; i < 3000; ++i) {
    offload_.resident.push_back({});
    offload_.resident.back().model = std::string(100, 'm');
  }
  v1::ClientFrame ps;
  ps.mutable_ps();
  auto deaf = Connect(kUser);
  auto other = Connect(kOther);
  for (uint64_t id = 1; id <= 8 && sessions_.size() == 2; ++id) {
    ps.set_request_id(id);
    Send(*deaf, ps);
    loop_.RunReady();
  }
  ASSERT_TRUE(loop_.RunUntil([&] { return sessions_.size() == 1; })) << "the connection that does not read goes on";
  EXPECT_EQ(uids_.Held(kUser, UidResource::kQueuedBytes), 0u);
  ps.set_request_id(1);
  EXPECT_TRUE(Ask(*other, ps).has_ps());
}

TEST_F(SessionTest, LoadReportsProgressAndIsCancelledWithItsClient) {
  auto client = Connect(kUser);
  v1::ClientFrame load;
  load.set_request_id(1);
  load.mutable_load()->mutable_model()->set_name("demo");
  Send(*client, load);
  ASSERT_TRUE(loop_.RunUntil([&] { return offload_.loads.size() == 1; }));
  offload_.load_progress({"weights", 5, 10});
  EXPECT_EQ(Receive(*client).loading().done(), 5u);
  client.reset();
  ASSERT_TRUE(loop_.RunUntil([&] { return sessions_.empty(); }));
  EXPECT_EQ(offload_.running.at("load-1").cancelled, supervisor::CancelCause::kClientGone);
}

TEST_F(SessionTest, EventsGoOnUntilCancelled) {
  auto client = Connect(kUser);
  v1::ClientFrame events, cancel;
  events.set_request_id(1);
  events.mutable_events();
  Send(*client, events);
  loop_.RunReady();
  events_.Publish({Duration(5), "demo#1.1", "LOADING", "demo", ""});
  EXPECT_EQ(Receive(*client).event().what(), "LOADING");
  events_.Publish({Duration(6), "fd#1.2", "LOADING", "fd:1001:00ff", ""});
  EXPECT_TRUE(NothingComes(*client)) << "another user's passed model was shown";
  cancel.set_request_id(2);
  cancel.mutable_cancel()->set_target_request_id(1);
  Send(*client, cancel);
  EXPECT_EQ(Receive(*client).done().finish_reason(), v1::FINISH_REASON_CANCELLED);
  EXPECT_TRUE(Receive(*client).cancel().found());
}

TEST_F(SessionTest, EventsOfOthersRequestsAreForAdministrators) {
  auto user = Connect(kUser), admin = Connect(kOther, {50});
  v1::ClientFrame events;
  events.set_request_id(1);
  events.mutable_events();
  Send(*user, events);
  Send(*admin, events);
  loop_.RunReady();
  events_.Publish({Duration(5), "inf-1", "DONE", "demo", "", kOther});
  events_.Publish({Duration(6), "inf-2", "DONE", "demo", "", kUser});
  EXPECT_EQ(Receive(*user).event().subject(), "inf-2");
  EXPECT_EQ(Receive(*admin).event().subject(), "inf-1");
  EXPECT_EQ(Receive(*admin).event().subject(), "inf-2");
}

TEST_F(SessionTest, EventsCanBeOfOneModelOnly) {
  auto client = Connect(kUser);
  v1::ClientFrame events;
  events.set_request_id(1);
  events.mutable_events()->set_model("demo");
  Send(*client, events);
  loop_.RunReady();
  events_.Publish({Duration(5), "other#1.1", "LOADING", "other", "", {}});
  events_.Publish({Duration(6), "demo#1.2", "LOADING", "demo", "", {}});
  EXPECT_EQ(Receive(*client).event().subject(), "demo#1.2");
}

TEST_F(SessionTest, WhoeverDoesNotReadEventsLosesSomeAndIsToldHowMany) {
  auto client = Connect(kUser);
  v1::ClientFrame events;
  events.set_request_id(1);
  events.mutable_events();
  Send(*client, events);
  loop_.RunReady();
  const std::string detail(1000, 'd');
  for (int i = 0; i < 2000; ++i) events_.Publish({Duration(i), "demo#1.1", "IDLE", "demo", detail, {}});
  uint64_t seen = 0;
  while (seen < 2000) {
    // Published again and again, since the loss is told with the first line that fits.
    loop_.RunReady();
    events_.Publish({Duration(0), "demo#1.1", "BUSY", "demo", "", {}});
    const v1::ServerFrame frame = Receive(*client);
    ASSERT_TRUE(frame.has_event());
    if (frame.event().what() == "lost") {
      EXPECT_GE(std::stoull(frame.event().detail()), 2000 - seen);
      return;
    }
    seen += frame.event().what() == "IDLE";
  }
  FAIL() << "nothing was lost, or nobody said so";
}

TEST_F(SessionTest, ADescriptorKeptForWorkersIsNotTakenByARequest) {
  services_->descriptors = DescriptorReserve(16);
  std::vector<UniqueFd> taken;
  while (taken.empty() || taken.back().get() < 16) taken.emplace_back(sys::Open("/dev/null", O_RDONLY));
  auto client = Connect(kUser);
  const v1::ServerFrame refused = Ask(*client, Generate(1));
  EXPECT_EQ(refused.error().reason(), v1::REASON_LIMIT_EXCEEDED);
  EXPECT_THAT(refused.error().message(), ::testing::HasSubstr("descriptors"));
}

TEST_F(SessionTest, NothingIsHeldForAPeerThatSendsRubbishAndReadsNothing) {
  for (int i = 0; i < 5000; ++i) {
    offload_.resident.push_back({});
    offload_.resident.back().model = std::string(200, 'm');
  }
  auto client = Connect(kUser);
  v1::ClientFrame ps;
  ps.set_request_id(1);
  ps.mutable_ps();
  Send(*client, ps);
  loop_.RunReady();
  EXPECT_GT(uids_.Held(kUser, UidResource::kQueuedBytes), 512u << 10);
  ASSERT_TRUE(client->SendEncoded(std::string(4, '\0'), std::chrono::seconds(1)).ok());
  ASSERT_TRUE(loop_.RunUntil([&] { return sessions_.empty(); }));
  // The kernel's own buffer is all there is left of the reply.
  size_t received = 0;
  for (absl::StatusOr<ipc::ReceivedFrame> got = client->Receive(std::chrono::seconds(1)); got.ok();
       got = client->Receive(std::chrono::seconds(1))) {
    received += got->bytes.size();
  }
  EXPECT_LT(received, 512u << 10);
}

std::atomic<int> accepts_failed;
std::atomic<bool> out_of_descriptors;

int FailAccept(const char* call) {
  if (std::string_view(call) != "Accept" || !out_of_descriptors) return 0;
  ++accepts_failed;
  return EMFILE;
}

TEST_F(SessionTest, RunningOutOfDescriptorsNeitherSpinsNorEndsTheService) {
  const std::string path = (directory_ / "s").string();
  auto listening = ipc::ListenUnix(path, 0600, 16);
  ASSERT_TRUE(listening.ok()) << listening.status();
  Server server(*services_);
  ASSERT_TRUE(server.Listen(*std::move(listening)).ok());
  accepts_failed = 0;
  out_of_descriptors = true;
  sys::SetFaultHook(&FailAccept);
  auto waiting = ipc::ConnectUnix(path);
  ASSERT_TRUE(waiting.ok()) << waiting.status();
  EXPECT_TRUE(loop_.RunUntil([&] { return accepts_failed > 0; }));
  for (int i = 0; i < 50; ++i) loop_.RunReady();
  // The socket is readable all along; only the timer may have let it try again.
  EXPECT_LE(accepts_failed, 2);
  EXPECT_EQ(server.sessions(), 0u);
  out_of_descriptors = false;
  EXPECT_TRUE(loop_.RunUntil([&] { return server.sessions() == 1; })) << "whoever waited was forgotten";
  sys::SetFaultHook(nullptr);
  server.StopListening();
}

TEST_F(SessionTest, AStoppingDaemonRefusesNewWork) {
  control_.is_stopping = true;
  auto client = Connect(kUser);
  EXPECT_EQ(Ask(*client, Generate(1)).error().reason(), v1::REASON_SHUTTING_DOWN);
}

}  // namespace
}  // namespace bulkhead::daemon
