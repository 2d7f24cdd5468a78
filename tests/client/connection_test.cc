#include "client/connection.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include <map>

#include "base/status.h"
#include "client/blocking_client.h"
#include "client/locate.h"
#include "tests/client/fake_daemon.h"

namespace bulkhead::client {
namespace {

v1::ClientFrame Generate(const std::string& prompt = "Once") {
  v1::ClientFrame frame;
  frame.mutable_generate()->mutable_model()->set_name("demo");
  frame.mutable_generate()->set_prompt(prompt);
  return frame;
}

TEST(Connection, DeliversEventsInOrderAndTheTerminalLast) {
  FakeDaemon daemon([](const v1::ClientFrame&, int) { return Story({"a", "b"}); });
  auto client = BlockingClient::Connect(daemon.socket()).value();
  std::string text;
  const v1::ServerFrame end =
      client->Call(Generate(), {}, [&](const v1::ServerFrame& frame) { text += frame.delta().text(); });
  EXPECT_EQ(text, "ab");
  EXPECT_EQ(end.done().finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(client->connection().open_requests(), 0u);
  EXPECT_EQ(client->connection().server_hello()->numerics(), 7u);
}

TEST(Connection, EndOfFileWithoutTerminalIsConnectionLost) {
  FakeDaemon daemon([](const v1::ClientFrame&, int) {
    FakeDaemon::Answer answer = Story({"a", "b"}, false);
    answer.hang_up = true;
    return answer;
  });
  auto client = BlockingClient::Connect(daemon.socket()).value();
  std::string text;
  const v1::ServerFrame end =
      client->Call(Generate(), {}, [&](const v1::ServerFrame& frame) { text += frame.delta().text(); });
  EXPECT_EQ(text, "ab");
  EXPECT_EQ(end.error().reason(), v1::REASON_CONNECTION_LOST);
  EXPECT_TRUE(end.error().retryable());
}

TEST(Connection, RubbishFromTheDaemonEndsEveryRequestWithProtocolError) {
  FakeDaemon daemon([](const v1::ClientFrame&, int) {
    return FakeDaemon::Answer{{}, std::string("\x03\0\0\0\xff\xff\xff", 7), false};
  });
  auto client = BlockingClient::Connect(daemon.socket()).value();
  EXPECT_EQ(client->Call(Generate()).error().reason(), v1::REASON_PROTOCOL_ERROR);
  // Later ones fail too instead of waiting.
  EXPECT_TRUE(client->Call(Generate()).has_error());
}

TEST(Connection, AnErrorOfTheConnectionItselfIsEveryRequestsError) {
  FakeDaemon daemon([](const v1::ClientFrame&, int) {
    v1::ServerFrame frame;
    frame.mutable_error()->set_reason(v1::REASON_SHUTTING_DOWN);
    frame.mutable_error()->set_message("going down");
    const std::string payload = frame.SerializeAsString();
    FakeDaemon::Answer answer;
    answer.raw = std::string(1, static_cast<char>(payload.size())) + std::string(3, '\0') + payload;
    answer.hang_up = true;
    return answer;
  });
  auto client = BlockingClient::Connect(daemon.socket()).value();
  const v1::ServerFrame end = client->Call(Generate());
  EXPECT_EQ(end.error().reason(), v1::REASON_SHUTTING_DOWN);
  EXPECT_EQ(end.error().message(), "going down");
}

TEST(Connection, AnswersSeveralRequestsAtOnceEachByItsOwnId) {
  uv_loop_t loop;
  uv_loop_init(&loop);
  {
    FakeDaemon daemon([](const v1::ClientFrame& frame, int) { return Story({frame.generate().prompt()}); });
    auto connection = Connection::Open(&loop, daemon.socket()).value();
    std::map<std::string, std::string> texts;
    int open = 3;
    for (const std::string prompt : {"x", "y", "z"}) {
      connection->Send(Generate(prompt), {}, [&, prompt](const v1::ServerFrame& received) {
        texts[prompt] += received.delta().text();
        if (IsTerminal(received)) --open;
      });
    }
    while (open > 0) uv_run(&loop, UV_RUN_ONCE);
    EXPECT_EQ(texts, (std::map<std::string, std::string>{{"x", "x"}, {"y", "y"}, {"z", "z"}}));
    connection.reset();
    uv_run(&loop, UV_RUN_DEFAULT);
  }
  EXPECT_EQ(uv_loop_close(&loop), 0);
}

TEST(Connection, MayBeDestroyedByItsOwnSink) {
  uv_loop_t loop;
  uv_loop_init(&loop);
  {
    FakeDaemon daemon([](const v1::ClientFrame&, int) { return Story({"a", "b", "c"}); });
    auto connection = Connection::Open(&loop, daemon.socket()).value();
    int frames = 0;
    connection->Send(Generate(), {}, [&](const v1::ServerFrame&) {
      ++frames;
      connection.reset();
    });
    uv_run(&loop, UV_RUN_DEFAULT);
    EXPECT_EQ(frames, 1);
  }
  EXPECT_EQ(uv_loop_close(&loop), 0);
}

TEST(Connection, CancelNamesTheRequestAndItsSinkGetsTheTerminal) {
  FakeDaemon daemon([](const v1::ClientFrame& frame, int) {
    if (frame.has_generate()) return Story({"a"}, false);
    FakeDaemon::Answer answer;
    answer.frames.emplace_back().set_request_id(frame.cancel().target_request_id());
    answer.frames.back().mutable_done()->set_finish_reason(v1::FINISH_REASON_CANCELLED);
    answer.frames.emplace_back().mutable_cancel()->set_found(true);
    return answer;
  });
  auto client = BlockingClient::Connect(daemon.socket()).value();
  uint64_t id = 0;
  const auto cancel = [&](const v1::ServerFrame& frame) {
    if (frame.has_delta()) client->connection().Cancel(id);
  };
  const v1::ServerFrame end = client->Call(Generate(), {}, cancel, [&](uint64_t sent) { id = sent; });
  EXPECT_EQ(end.done().finish_reason(), v1::FINISH_REASON_CANCELLED);
}

TEST(Connection, SaysWhichSocketNobodyAnswersOn) {
  const auto client = BlockingClient::Connect("/nonexistent/bulkhead.sock");
  EXPECT_EQ(ReasonOf(client.status()), Reason::kDaemonUnreachable);
  EXPECT_NE(Message(client.status()).find("/nonexistent/bulkhead.sock"), std::string::npos);
}

TEST(Connection, NamesTheLimitOfASocketPath) {
  const auto client = BlockingClient::Connect("/tmp/" + std::string(120, 'x'));
  EXPECT_NE(Message(client.status()).find("107"), std::string::npos) << client.status();
}

TEST(Connection, PassesTheModelsDescriptorWithItsRequest) {
  std::string content;
  FakeDaemon daemon([&](const v1::ClientFrame& frame, int descriptor) {
    char buffer[8] = {};
    if (frame.generate().model().passed() && pread(descriptor, buffer, sizeof(buffer), 0) > 0) content = buffer;
    return Story({"a"});
  });
  char path[] = "/tmp/bulkhead-model-XXXXXX.gguf";
  const int fd = mkstemps(path, 5);
  ASSERT_EQ(write(fd, "GGUF", 4), 4);
  close(fd);
  auto model = ResolveModel(path).value();
  unlink(path);
  v1::ClientFrame frame = Generate();
  SetModelRef(model, frame.mutable_generate()->mutable_model());
  auto client = BlockingClient::Connect(daemon.socket()).value();
  EXPECT_TRUE(client->Call(std::move(frame), std::move(model.file)).has_done());
  EXPECT_EQ(content, "GGUF");
}

TEST(Locate, TriesTheChosenElseTheEnvironmentsElseUserAndSystemSockets) {
  unsetenv("BULKHEAD_SOCKET");
  setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
  EXPECT_EQ(SocketCandidates(""),
            (std::vector<std::string>{"/run/user/7/bulkhead/bulkhead.sock", "/run/bulkhead/bulkhead.sock"}));
  setenv("BULKHEAD_SOCKET", "/e", 1);
  EXPECT_EQ(SocketCandidates(""), std::vector<std::string>{"/e"});
  EXPECT_EQ(SocketCandidates("/c"), std::vector<std::string>{"/c"});
  unsetenv("BULKHEAD_SOCKET");
}

TEST(Locate, RefusesAModelPathThatIsNoRegularFile) {
  EXPECT_EQ(ReasonOf(ResolveModel("/nonexistent.gguf").status()), Reason::kModelNotFound);
  char directory[] = "/tmp/bulkhead-model-XXXXXX";
  ASSERT_NE(mkdtemp(directory), nullptr);
  const std::string path = std::string(directory) + "/d.gguf";
  ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
  EXPECT_EQ(ReasonOf(ResolveModel(path).status()), Reason::kModelNotFound);
  rmdir(path.c_str());
  rmdir(directory);
}

}  // namespace
}  // namespace bulkhead::client
