#include "tests/client/fake_daemon.h"

#include <unistd.h>

#include <cstdlib>

#include "base/status.h"
#include "base/sys.h"
#include "ipc/blocking_frame_socket.h"
#include "ipc/unix_address.h"

namespace bulkhead {
namespace {

constexpr auto kWait = std::chrono::seconds(10);
constexpr auto kTick = std::chrono::milliseconds(20);

v1::ServerFrame HelloFrame() {
  v1::ServerFrame hello;
  hello.mutable_hello()->set_protocol_min(1);
  hello.mutable_hello()->set_protocol_max(1);
  hello.mutable_hello()->set_build("fake");
  hello.mutable_hello()->set_numerics(7);
  return hello;
}

}  // namespace

FakeDaemon::FakeDaemon(Script script) : script_(std::move(script)) {
  char pattern[] = "/tmp/bulkhead-client-XXXXXX";
  directory_ = mkdtemp(pattern);
  socket_ = directory_ + "/s";
  listener_ = ipc::ListenUnix(socket_, 0600, 16).value();
  thread_ = std::thread([this] { Serve(); });
}

FakeDaemon::~FakeDaemon() {
  stopping_ = true;
  thread_.join();
  unlink(socket_.c_str());
  rmdir(directory_.c_str());
}

std::vector<v1::ClientFrame> FakeDaemon::received() {
  const std::lock_guard lock(mutex_);
  return received_;
}

void FakeDaemon::Serve() {
  while (!stopping_) {
    pollfd waiting{listener_.get(), POLLIN, 0};
    if (sys::Poll(&waiting, 1, 20) <= 0) continue;
    if (const int fd = sys::Accept(listener_.get()); fd >= 0) ServeOne(UniqueFd(fd));
  }
}

void FakeDaemon::ServeOne(UniqueFd connection) {
  ipc::BlockingFrameSocket socket(std::move(connection));
  while (!stopping_) {
    auto got = socket.Receive(kTick);
    if (!got.ok() && ReasonOf(got.status()) == Reason::kDeadlineExceeded) continue;
    v1::ClientFrame frame;
    if (!got.ok() || !frame.ParseFromString(got->bytes)) return;
    if (frame.has_hello()) {
      if (!socket.Send(HelloFrame(), kWait).ok()) return;
      continue;
    }
    {
      const std::lock_guard lock(mutex_);
      received_.push_back(frame);
    }
    Answer answer = script_(frame, got->descriptor.get());
    for (v1::ServerFrame& reply : answer.frames) {
      if (reply.request_id() == 0) reply.set_request_id(frame.request_id());
      if (!socket.Send(reply, kWait).ok()) return;
    }
    if (!answer.raw.empty() && sys::Send(socket.fd(), answer.raw.data(), answer.raw.size(), MSG_NOSIGNAL) < 0) return;
    if (answer.hang_up) return;
  }
}

FakeDaemon::Answer Reply(v1::ServerFrame frame) { return {{std::move(frame)}, "", false}; }

FakeDaemon::Answer ReplyError(v1::Reason reason, const std::string& message) {
  const ReasonInfo& info = InfoOf(static_cast<Reason>(reason));
  v1::ServerFrame frame;
  frame.mutable_error()->set_code(static_cast<uint32_t>(info.code));
  frame.mutable_error()->set_reason(reason);
  frame.mutable_error()->set_message(message);
  frame.mutable_error()->set_retryable(info.retryable);
  return Reply(std::move(frame));
}

FakeDaemon::Answer Story(const std::vector<std::string>& texts, bool done) {
  FakeDaemon::Answer answer;
  v1::Started* started = answer.frames.emplace_back().mutable_started();
  started->set_inference_id("inf-1");
  started->set_allocation_id("demo#a.1");
  started->set_seed(42);
  started->set_prompt_tokens(3);
  started->set_context(512);
  for (size_t i = 0; i < texts.size(); ++i) {
    v1::Delta* delta = answer.frames.emplace_back().mutable_delta();
    delta->set_index(i);
    delta->set_text(texts[i]);
    delta->add_tokens()->set_id(static_cast<int32_t>(10 + i));
  }
  if (done) {
    v1::Done* end = answer.frames.emplace_back().mutable_done();
    end->set_finish_reason(v1::FINISH_REASON_STOP);
    end->mutable_usage()->set_prompt_tokens(3);
    end->mutable_usage()->set_completion_tokens(static_cast<uint32_t>(texts.size()));
  }
  return answer;
}

}  // namespace bulkhead
