#include "tests/simulation/worker.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/build_id.h"

namespace bulkhead::sim {
namespace {

constexpr uint32_t kLoadSteps = 3;
constexpr size_t kMaxLength = 24;

uint64_t Mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

v1::Manifest ManifestOfModel() {
  v1::Manifest manifest;
  manifest.set_architecture("simulated");
  manifest.set_weight_bytes(256 << 20);
  manifest.set_trained_context(4096);
  manifest.set_kv_bytes_per_token(16 << 10);
  manifest.set_arena_bytes(16 << 20);
  manifest.set_overhead_bytes(16 << 20);
  return manifest;
}

}  // namespace

Oracle::Oracle(std::string_view prompt, uint64_t seed, uint32_t max_tokens) {
  key_ = seed + 0x9E3779B97F4A7C15;
  for (const char c : prompt) key_ = Mix(key_ + static_cast<unsigned char>(c));
  const size_t natural = 1 + Mix(key_ ^ 1) % kMaxLength;
  const bool cut = max_tokens > 0 && max_tokens < natural;
  length = cut ? max_tokens : natural;
  finish = cut ? v1::FINISH_REASON_LENGTH : v1::FINISH_REASON_STOP;
}

int32_t Oracle::TokenAt(size_t index) const { return static_cast<int32_t>(Mix(key_ + index * 2 + 3) % 50000); }
std::string Oracle::TextOf(int32_t token) { return fmt::format("{} ", token); }

bool Worker::Act() {
  if (!process_.alive() || process_.stopped || silent) return false;
  if (process_.inspects) return Inspect();
  Flush();
  if (!process_.alive()) return true;
  switch (phase_) {
    case Phase::kStarted: {
      v1::WorkerFrame frame;
      frame.mutable_hello()->set_build(std::string(BuildId()));
      frame.mutable_hello()->set_pid(process_.pid);
      phase_ = Phase::kHello;
      SendFrame(frame);
      return true;
    }
    case Phase::kHello:
      return Read();
    case Phase::kLoading: {
      v1::WorkerFrame frame;
      if (loaded_ < kLoadSteps) {
        frame.mutable_load_progress()->set_phase("weights");
        frame.mutable_load_progress()->set_done(++loaded_);
        frame.mutable_load_progress()->set_total(kLoadSteps);
      } else {
        frame.mutable_ready()->set_context(configure_.context());
        frame.mutable_ready()->set_sequences(configure_.sequences());
        phase_ = Phase::kReady;
      }
      SendFrame(frame);
      return true;
    }
    case Phase::kReady:
      return Read() || Produce();
  }
  return false;
}

bool Worker::Inspect() {
  const std::string frame = *ipc::EncodeFrame(ManifestOfModel());
  if (::write(process_.output.get(), frame.data(), frame.size()) != static_cast<ssize_t>(frame.size())) {
    violations_.emplace_back("the manifest did not fit its pipe");
  }
  process_.End({0, 0});
  return true;
}

bool Worker::Read() {
  std::array<char, 16384> buffer;
  const ssize_t got = ::recv(process_.control.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (got < 0) return false;
  if (got == 0) {
    // The daemon let go of it: a worker ends by itself then.
    process_.End({0, 0});
    return true;
  }
  std::string_view bytes(buffer.data(), static_cast<size_t>(got));
  while (process_.alive()) {
    const auto payload = reader_.Next(&bytes);
    if (!payload.ok()) violations_.push_back("a malformed frame came: " + Message(payload.status()));
    if (!payload.ok() || !payload->has_value()) break;
    v1::DaemonFrame frame;
    if (!frame.ParseFromArray((*payload)->data(), static_cast<int>((*payload)->size()))) {
      violations_.emplace_back("a frame came that does not parse");
      break;
    }
    Handle(frame);
  }
  return true;
}

void Worker::Handle(const v1::DaemonFrame& frame) {
  switch (frame.kind_case()) {
    case v1::DaemonFrame::kConfigure:
      if (phase_ != Phase::kHello) violations_.emplace_back("a second configure");
      configure_ = frame.configure();
      phase_ = Phase::kLoading;
      return;
    case v1::DaemonFrame::kGenerate:
      return Begin(frame.generate());
    case v1::DaemonFrame::kCancel: {
      const auto found = sequences_.find(frame.cancel().handle());
      if (found == sequences_.end()) return;
      v1::WorkerFrame answer;
      v1::SequenceStep& step = *answer.mutable_step()->add_sequences();
      step.set_handle(found->first);
      step.set_index(found->second.produced);
      step.set_finish_reason(v1::FINISH_REASON_CANCELLED);
      sequences_.erase(found);
      return SendFrame(answer);
    }
    case v1::DaemonFrame::kPause:
      if (const auto found = sequences_.find(frame.pause().handle()); found != sequences_.end()) {
        found->second.paused = frame.pause().paused();
      }
      return;
    case v1::DaemonFrame::kTokenize: {
      v1::WorkerFrame answer;
      answer.mutable_tokenized()->set_handle(frame.tokenize().handle());
      for (const char c : frame.tokenize().text()) answer.mutable_tokenized()->add_ids(static_cast<unsigned char>(c));
      return SendFrame(answer);
    }
    case v1::DaemonFrame::kShutdown:
      return process_.End({0, 0});
    default:
      return;
  }
}

void Worker::Begin(const v1::WorkerGenerate& generate) {
  if (sequences_.size() >= configure_.sequences()) {
    violations_.push_back(fmt::format("request {} beyond its {} sequences", generate.handle(), configure_.sequences()));
  }
  // A resumed one comes with the ids that its first worker made of its prompt.
  std::string prompt = generate.prompt();
  for (const int32_t id : generate.token_ids().ids()) prompt += static_cast<char>(id);
  const Oracle oracle(prompt, generate.sampling().seed(), generate.max_tokens());
  Sequence sequence{oracle, static_cast<size_t>(generate.resume_ids_size()), false};
  if (sequence.produced > oracle.length) violations_.emplace_back("resumed behind its end");
  for (size_t i = 0; i < sequence.produced; ++i) {
    if (generate.resume_ids(static_cast<int>(i)) != oracle.TokenAt(i)) {
      violations_.push_back(fmt::format("handle {}: resumed with a wrong token at {}", generate.handle(), i));
    }
  }
  if (!sequences_.emplace(generate.handle(), sequence).second) violations_.emplace_back("a handle used twice");
  v1::WorkerFrame frame;
  frame.mutable_started()->set_handle(generate.handle());
  for (const char c : prompt) frame.mutable_started()->add_prompt_ids(static_cast<unsigned char>(c));
  frame.mutable_started()->set_context(configure_.context());
  SendFrame(frame);
}

bool Worker::Produce() {
  v1::WorkerFrame frame;
  for (auto place = sequences_.begin(); place != sequences_.end();) {
    Sequence& sequence = place->second;
    if (sequence.paused) {
      ++place;
      continue;
    }
    ++progress_;
    v1::SequenceStep& step = *frame.mutable_step()->add_sequences();
    step.set_handle(place->first);
    step.set_index(sequence.produced);
    if (sequence.produced < sequence.oracle.length) {
      const int32_t token = sequence.oracle.TokenAt(sequence.produced++);
      step.add_tokens()->set_id(token);
      step.set_text(Oracle::TextOf(token));
    }
    if (sequence.produced < sequence.oracle.length) {
      ++place;
      continue;
    }
    step.set_finish_reason(sequence.oracle.finish);
    step.mutable_usage()->set_completion_tokens(static_cast<uint32_t>(sequence.produced));
    place = sequences_.erase(place);
  }
  if (frame.step().sequences().empty()) return false;
  SendFrame(frame);
  return true;
}

void Worker::Heartbeat() {
  if (!process_.alive() || process_.stopped || silent || process_.inspects) return;
  if (phase_ != Phase::kLoading && phase_ != Phase::kReady) return;
  v1::WorkerFrame frame;
  frame.mutable_heartbeat()->set_progress(progress_);
  frame.mutable_heartbeat()->set_phase(phase_ == Phase::kLoading ? "load" : sequences_.empty() ? "idle" : "decode");
  SendFrame(frame);
}

void Worker::FailToLoad(v1::Reason reason) {
  v1::WorkerFrame frame;
  frame.mutable_load_failed()->set_reason(reason);
  frame.mutable_load_failed()->set_message("simulated");
  frame.mutable_load_failed()->set_wanted_bytes(8 << 20);
  frame.mutable_load_failed()->set_in_use_bytes(2 << 20);
  frame.mutable_load_failed()->set_limit_bytes(4 << 20);
  SendFrame(frame);
  process_.End({0, 0});
}

void Worker::SendFrame(const v1::WorkerFrame& frame) { Write(*ipc::EncodeFrame(frame)); }

void Worker::Write(std::string bytes) {
  outgoing_ += bytes;
  Flush();
}

void Worker::Flush() {
  while (process_.alive() && !outgoing_.empty()) {
    const ssize_t sent =
        ::send(process_.control.get(), outgoing_.data(), outgoing_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EAGAIN) return;
    if (sent < 0) return process_.End({0, 0});
    outgoing_.erase(0, static_cast<size_t>(sent));
  }
}

}  // namespace bulkhead::sim
