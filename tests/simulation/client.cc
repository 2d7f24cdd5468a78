#include "tests/simulation/client.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace bulkhead::sim {

uint64_t Client::Ask(v1::ClientFrame frame, std::set<pid_t> must_be_gone) {
  const uint64_t id = ++last_id_;
  frame.set_request_id(id);
  SendRaw(*ipc::EncodeFrame(frame));
  Request request;
  request.asked = std::move(frame);
  request.must_be_gone = std::move(must_be_gone);
  waiting_.emplace(id, std::move(request));
  return id;
}

uint64_t Client::Listen(v1::ClientFrame frame, const Oracle& oracle, uint64_t from_index) {
  const uint64_t id = Ask(std::move(frame));
  Request& request = waiting_.at(id);
  request.oracle = oracle;
  request.next_index = from_index;
  return id;
}

void Client::Hello() {
  v1::ClientFrame frame;
  frame.mutable_hello()->set_protocol_min(1);
  frame.mutable_hello()->set_protocol_max(1);
  SendRaw(*ipc::EncodeFrame(frame));
}

void Client::Close() {
  if (fd_.valid()) ::close(fd_.Release());
  waiting_.clear();
}

void Client::Turn() {
  while (open() && !outgoing_.empty()) {
    const ssize_t sent = ::send(fd_.get(), outgoing_.data(), outgoing_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EAGAIN) break;
    // The end is seen by reading, behind what had been sent.
    if (sent < 0) outgoing_.clear();
    if (sent > 0) outgoing_.erase(0, static_cast<size_t>(sent));
  }
  std::array<char, 65536> buffer;
  while (open() && !stalled) {
    const ssize_t got = ::recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return Close();
    std::string_view bytes(buffer.data(), static_cast<size_t>(got));
    while (true) {
      const auto payload = reader_.Next(&bytes);
      if (!payload.ok()) return Wrong("no frame: " + Message(payload.status()));
      if (!payload->has_value()) break;
      for (const char c : **payload) digest_ = (digest_ ^ static_cast<unsigned char>(c)) * 0x100000001B3;
      v1::ServerFrame frame;
      if (!frame.ParseFromArray((*payload)->data(), static_cast<int>((*payload)->size()))) {
        return Wrong("a frame that does not parse");
      }
      Take(frame);
    }
  }
}

void Client::Take(const v1::ServerFrame& frame) {
  if (frame.request_id() == 0) {
    if (frame.has_error() && !hostile) Wrong(fmt::format("connection: {}", frame.error().message()));
    return;
  }
  const auto found = waiting_.find(frame.request_id());
  if (found == waiting_.end()) {
    return Wrong(fmt::format("request {}: a frame after its terminal: {}", frame.request_id(),
                             frame.ShortDebugString().substr(0, 200)));
  }
  Request& request = found->second;
  switch (frame.kind_case()) {
    case v1::ServerFrame::kQueued:
    case v1::ServerFrame::kLoading:
    case v1::ServerFrame::kEvent:
      return;
    case v1::ServerFrame::kResumed:
      return OnResumed(request, frame.resumed());
    case v1::ServerFrame::kStarted:
      request.inference_id = frame.started().inference_id();
      return;
    case v1::ServerFrame::kDelta:
      return OnDelta(request, frame.delta());
    case v1::ServerFrame::kDone:
      OnDone(request, frame.done());
      break;
    default:
      break;
  }
  answers_.push_back({std::move(request), frame});
  waiting_.erase(found);
}

void Client::OnResumed(Request& request, const v1::Resumed& resumed) {
  ++request.resumed;
  if (!request.oracle.has_value()) Wrong("resumed, and no generation");
  if (request.asked.generate().on_worker_death() == v1::ON_WORKER_DEATH_FAIL) {
    Wrong(fmt::format("{}: resumed against its will", request.inference_id));
  }
  // An attached one, or one that joined under a key, did not hear of the earlier ones.
  const bool heard_all = request.asked.has_generate() && request.asked.generate().idempotency_key().empty();
  if (heard_all && resumed.attempt() != request.resumed) {
    Wrong(fmt::format("{}: resumed {} times, and told of attempt {}", request.inference_id, request.resumed,
                      resumed.attempt()));
  }
}

void Client::OnDelta(Request& request, const v1::Delta& delta) {
  if (!request.oracle.has_value()) return Wrong("a delta of no generation");
  if (delta.index() > request.next_index || delta.index() + delta.tokens_size() < request.next_index) {
    return Wrong(fmt::format("{}: at token {}, its delta begins at {}", request.inference_id, request.next_index,
                             delta.index()));
  }
  std::string text;
  for (int i = 0; i < delta.tokens_size(); ++i) {
    const uint64_t index = delta.index() + static_cast<uint64_t>(i);
    const int32_t right = request.oracle->TokenAt(index);
    text += Oracle::TextOf(right);
    if (index >= request.oracle->length) Wrong(fmt::format("{}: more than its sequence", request.inference_id));
    if (delta.tokens(i).id() != right) {
      Wrong(fmt::format("{}: token {} is {}, not {}", request.inference_id, index, delta.tokens(i).id(), right));
    }
  }
  if (delta.text() != text) Wrong(fmt::format("{}: text '{}', not '{}'", request.inference_id, delta.text(), text));
  request.next_index = delta.index() + static_cast<uint64_t>(delta.tokens_size());
}

void Client::OnDone(const Request& request, const v1::Done& done) {
  if (!request.oracle.has_value()) {
    if (done.finish_reason() != v1::FINISH_REASON_CANCELLED) Wrong("done of no generation");
    return;
  }
  if (done.finish_reason() == v1::FINISH_REASON_CANCELLED) {
    if (!request.cancelled) Wrong(fmt::format("{}: cancelled by nobody", request.inference_id));
    return;
  }
  if (request.next_index != request.oracle->length || done.finish_reason() != request.oracle->finish) {
    Wrong(fmt::format("{}: done after {} of {} tokens", request.inference_id, request.next_index,
                      request.oracle->length));
  }
  if (done.usage().completion_tokens() != request.oracle->length) {
    Wrong(fmt::format("{}: usage counts {} tokens of {}", request.inference_id, done.usage().completion_tokens(),
                      request.oracle->length));
  }
}

}  // namespace bulkhead::sim
