// A daemon's inside without processes: sessions over socketpairs, an offload that does what the test says, and time
// that the test moves.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "base/sys.h"
#include "daemon/session.h"
#include "ipc/blocking_frame_socket.h"
#include "tests/daemon/loop.h"

namespace bulkhead::daemon {

class FakeOffload final : public supervisor::LocalGenerationOffload {
 public:
  struct Running {
    supervisor::OffloadRequest request;
    std::unique_ptr<supervisor::StreamSink> sink;
    bool paused = false;
    std::optional<supervisor::CancelCause> cancelled;
  };

  void AcquireAdmission(supervisor::OffloadRequest request, std::unique_ptr<supervisor::StreamSink> sink,
                        Admitted) override {
    last_id = request.inference_id;
    running[last_id] = {std::move(request), std::move(sink), false, std::nullopt};
  }
  void GenerateAdmitted(supervisor::OffloadRequest, supervisor::LocalWorkerAdmission, GenerateDone) override {}
  void StreamAdmitted(supervisor::OffloadRequest, supervisor::LocalWorkerAdmission,
                      std::unique_ptr<supervisor::StreamSink>) override {}
  bool Cancel(std::string_view id, supervisor::CancelCause cause) override {
    const auto found = running.find(std::string(id));
    if (found == running.end()) return false;
    found->second.cancelled = cause;
    return true;
  }
  bool Pause(std::string_view id, bool paused) override {
    const auto found = running.find(std::string(id));
    if (found == running.end()) return false;
    found->second.paused = paused;
    return true;
  }
  void TerminateInference(std::string_view id, std::function<void(supervisor::InferenceTerminationAck)> done) override {
    terminated.emplace_back(id);
    done({supervisor::InferenceTerminationAck::Kind::kConfirmed, "demo#1.1", "SIGKILL", ""});
  }
  std::vector<uid_t> OthersInProcessOf(std::string_view) const override { return others; }
  void ReleaseModel(std::string_view model, supervisor::ReleaseOptions,
                    std::function<void(absl::StatusOr<bool>)> done) override {
    released.emplace_back(model);
    if (model == "stuck") return done(Error(Reason::kPendingTeardown, "stuck"));
    done(model == "demo");
  }
  std::string Load(supervisor::LoadSpec spec, LoadProgress progress,
                   std::function<void(absl::StatusOr<supervisor::LoadResult>)> done) override {
    loads.push_back(std::move(spec));
    load_progress = std::move(progress);
    load_done = std::move(done);
    running["load-1"] = {};
    return "load-1";
  }
  std::vector<supervisor::ResidentModel> ResidentModels() const override { return resident; }
  std::vector<supervisor::RequestInfo> Requests() const override {
    std::vector<supervisor::RequestInfo> infos;
    for (const auto& [id, entry] : running) {
      infos.push_back({});
      infos.back().inference_id = id;
      infos.back().uid = entry.request.uid;
    }
    return infos;
  }
  std::vector<v1::Death> Deaths() const override { return deaths; }

  supervisor::StreamSink& sink() { return *running.at(last_id).sink; }
  void Started() { sink().OnStarted({last_id, "demo#1.1", 7, 3, 100}); }
  void Delta(uint64_t index, const std::string& text) {
    v1::Token token;
    token.set_id(static_cast<int32_t>(index) + 100);
    sink().OnDelta({index, text, {token}});
  }
  void Done(v1::FinishReason reason = v1::FINISH_REASON_STOP) {
    supervisor::DoneEvent done;
    done.finish_reason = reason;
    sink().OnDone(done);
    running.erase(last_id);
  }

  std::map<std::string, Running> running;
  std::string last_id;
  std::vector<uid_t> others;
  std::vector<std::string> released;
  std::vector<std::string> terminated;
  std::vector<supervisor::LoadSpec> loads;
  LoadProgress load_progress;
  std::function<void(absl::StatusOr<supervisor::LoadResult>)> load_done;
  std::vector<supervisor::ResidentModel> resident;
  std::vector<v1::Death> deaths;
};

class FakeControl final : public Control {
 public:
  const LoadedConfig& loaded() const override { return config; }
  const Access& access() const override { return rights; }
  uint64_t generation() const override { return 4; }
  bool stopping() const override { return is_stopping; }
  std::string degraded() const override { return "no cgroup"; }
  absl::Status SetPolicy(const std::vector<Setting>& settings) override {
    auto next = Apply(config, settings);
    if (next.ok()) config = *next;
    return next.status();
  }
  void Reload(std::function<void(absl::Status)> done) override { done(absl::OkStatus()); }
  void Doctor(std::function<void(v1::DoctorReply)> done) override { done({}); }

  LoadedConfig config;
  Access rights{999, 50};
  bool is_stopping = false;
};

class SessionFixture : public ::testing::Test {
 protected:
  static constexpr uid_t kUser = 1000;
  static constexpr uid_t kOther = 1001;
  using Client = ipc::BlockingFrameSocket;

  SessionFixture() : directory_(std::filesystem::temp_directory_path() / ("session-" + std::to_string(sys::GetPid()))) {
    std::filesystem::create_directories(directory_);
    std::ofstream(directory_ / "demo.gguf") << "weights";
    catalogue_ = std::make_unique<Catalogue>(loop_.get(), std::vector<std::string>{directory_});
    inferences_ = std::make_unique<InferenceTable>(loop_.get(), clock_, offload_);
    services_ = std::make_unique<Services>(
        Services{sockets_, clock_, offload_, *catalogue_, *inferences_, uids_, events_, control_});
  }
  ~SessionFixture() override {
    sessions_.clear();
    offload_.running.clear();
    inferences_.reset();
    catalogue_.reset();
    std::filesystem::remove_all(directory_);
  }

  // A connection that has not said Hello.
  std::unique_ptr<Client> ConnectRaw(uid_t uid, std::vector<gid_t> groups = {}) {
    int fds[2];
    EXPECT_EQ(sys::SocketPair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    auto session = Session::Start(*services_, UniqueFd(fds[0]), {42, uid, uid, std::move(groups)}, UidShare(),
                                  [this](Session* ended) { sessions_.erase(ended); });
    EXPECT_TRUE(session.ok());
    last_session_ = session->get();
    sessions_.emplace(session->get(), *session);
    return std::make_unique<Client>(UniqueFd(fds[1]));
  }

  std::unique_ptr<Client> Connect(uid_t uid, std::vector<gid_t> groups = {}) {
    auto client = ConnectRaw(uid, std::move(groups));
    v1::ClientFrame hello;
    hello.mutable_hello()->set_protocol_min(1);
    hello.mutable_hello()->set_protocol_max(1);
    Send(*client, hello);
    EXPECT_TRUE(Receive(*client).has_hello());
    return client;
  }

  static void Send(Client& client, const v1::ClientFrame& frame, UniqueFd descriptor = {}) {
    EXPECT_TRUE(client.Send(frame, std::chrono::seconds(5), std::move(descriptor)).ok());
  }

  // The next frame; an empty one where the connection ended or nothing came.
  v1::ServerFrame Receive(Client& client) {
    v1::ServerFrame frame;
    loop_.RunUntil([&] {
      auto received = client.Receive(Duration(0));
      if (!received.ok()) return ReasonOf(received.status()) != Reason::kDeadlineExceeded;
      EXPECT_TRUE(frame.ParseFromString(received->bytes));
      return true;
    });
    return frame;
  }
  bool NothingComes(Client& client) {
    loop_.RunReady();
    return ReasonOf(client.Receive(Duration(0)).status()) == Reason::kDeadlineExceeded;
  }
  bool Ended(Client& client) {
    return loop_.RunUntil([&] {
      const auto received = client.Receive(Duration(0));
      return !received.ok() && ReasonOf(received.status()) == Reason::kConnectionLost;
    });
  }

  static v1::ClientFrame Generate(uint64_t id, const std::string& prompt = "hello") {
    v1::ClientFrame frame;
    frame.set_request_id(id);
    frame.mutable_generate()->mutable_model()->set_name("demo");
    frame.mutable_generate()->set_prompt(prompt);
    return frame;
  }
  // Sends a generate and waits until the offload has it.
  void Begin(Client& client, const v1::ClientFrame& frame) {
    const size_t before = offload_.running.size();
    Send(client, frame);
    ASSERT_TRUE(loop_.RunUntil([&] { return offload_.running.size() > before; }));
  }

  TestLoop loop_;
  ipc::SocketLoop sockets_{loop_.get()};
  FakeClock clock_;
  FakeOffload offload_;
  FakeControl control_;
  UidLedger uids_;
  EventHub events_;
  std::filesystem::path directory_;
  std::unique_ptr<Catalogue> catalogue_;
  std::unique_ptr<InferenceTable> inferences_;
  std::unique_ptr<Services> services_;
  std::map<Session*, std::shared_ptr<Session>> sessions_;
  Session* last_session_ = nullptr;
};

}  // namespace bulkhead::daemon
