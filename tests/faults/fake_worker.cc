// A scripted stand-in for bulkhead-worker, for faults that the real one does not have. The "model file" (descriptor 4)
// holds its script: lines "key value". Keys: `load` names a fault of the start, done once, while the file `flag` exists
// (which it removes). A prompt names what a generation does: "count N" produces N tokens, "<fault> N" commits the fault
// after N tokens.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/build_id.h"
#include "bulkhead/v1/worker.pb.h"
#include "ipc/blocking_frame_socket.h"
#include "ipc/frame.h"
#include "ipc/worker_abi.h"

namespace bulkhead {
namespace {

using std::chrono::milliseconds;

std::map<std::string, std::string> ReadScript() {
  std::string text(4096, '\0');
  const ssize_t got = ::pread(ipc::kWorkerModel, text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  std::map<std::string, std::string> script;
  std::istringstream lines(text);
  for (std::string key, value; lines >> key >> value;) script[key] = value;
  return script;
}

int Inspect() {
  v1::Manifest manifest;
  manifest.set_architecture("fake");
  manifest.set_weight_bytes(1 << 20);
  manifest.set_trained_context(4096);
  manifest.set_kv_bytes_per_token(64);
  manifest.set_arena_bytes(1 << 20);
  manifest.set_overhead_bytes(1 << 20);
  const std::string frame = *ipc::EncodeFrame(manifest);
  return ::write(STDOUT_FILENO, frame.data(), frame.size()) == static_cast<ssize_t>(frame.size()) ? 0 : 1;
}

void Freeze() {
  while (true) ::pause();
}

// A grandchild in another session that keeps the control socket and stderr open for a while.
void LeaveGrandchild() {
  if (::fork() != 0) return;
  ::alarm(20);
  Freeze();
}

void Crash(const std::string& fault) {
  if (fault == "exit") ::_exit(3);
  if (fault == "exit0") ::_exit(0);
  if (fault == "kill") ::kill(::getpid(), SIGKILL);
  if (fault == "abort") {
    std::fputs("fake_worker: last words\n", stderr);
    std::abort();
  }
  if (fault == "segv") ::raise(SIGSEGV);
  if (fault == "sigsys") ::raise(SIGSYS);
  if (fault == "sigill") ::raise(SIGILL);
  if (fault == "sigbus") ::raise(SIGBUS);
  if (fault == "freeze") Freeze();
  if (fault == "stop") ::raise(SIGSTOP);
  if (fault == "oom") {
    char buffer[128];
    const std::string_view line = ipc::FormatOutOfMemory({8 << 20, 2 << 20, 4 << 20}, buffer);
    (void)!::write(STDERR_FILENO, line.data(), line.size());
    ::_exit(ipc::kWorkerExitOutOfMemory);
  }
  if (fault == "grandchild") {
    LeaveGrandchild();
    ::_exit(3);
  }
}

class FakeWorker {
 public:
  FakeWorker() : socket_(UniqueFd(ipc::kWorkerControl)), script_(ReadScript()) {}

  void Run() {
    if (TakesFault()) load_fault_ = script_["load"];
    if (load_fault_ == "before_hello") ::_exit(3);
    if (load_fault_ == "never_hello") Freeze();
    Hello();
    Configure();
    Load();
    while (true) Turn();
  }

 private:
  struct Generation {
    std::string fault;
    int count = 0;
    int produced = 0;
    bool paused = false;
  };

  bool TakesFault() { return script_.contains("load") && ::unlink(script_["flag"].c_str()) == 0; }

  void Send(const v1::WorkerFrame& frame) {
    if (!socket_.Send(frame, std::chrono::seconds(30)).ok()) ::_exit(ipc::kWorkerExitDaemonGone);
  }
  void SendRaw(const std::string& bytes) { (void)!::write(socket_.fd(), bytes.data(), bytes.size()); }

  void Hello() {
    v1::WorkerFrame frame;
    frame.mutable_hello()->set_build(load_fault_ == "wrong_build" ? "another" : std::string(BuildId()));
    frame.mutable_hello()->set_pid(::getpid());
    Send(frame);
  }

  void Configure() {
    const auto received = socket_.Receive(std::chrono::seconds(30));
    v1::DaemonFrame frame;
    if (!received.ok() || !frame.ParseFromString(received->bytes) || !frame.has_configure()) ::_exit(72);
    configure_ = frame.configure();
  }

  void Load() {
    for (int step = 0; step <= 4; ++step) {
      v1::WorkerFrame frame;
      frame.mutable_load_progress()->set_phase("weights");
      frame.mutable_load_progress()->set_done(static_cast<uint64_t>(step));
      frame.mutable_load_progress()->set_total(4);
      Send(frame);
      if (step == 2 && !load_fault_.empty()) FailToLoad();
    }
    v1::WorkerFrame frame;
    frame.mutable_ready()->set_context(configure_.context());
    frame.mutable_ready()->set_sequences(configure_.sequences());
    Send(frame);
  }

  void FailToLoad() {
    if (load_fault_ == "invalid" || load_fault_ == "load_oom") {
      v1::WorkerFrame frame;
      v1::LoadFailed& failed = *frame.mutable_load_failed();
      failed.set_reason(load_fault_ == "invalid" ? v1::REASON_MODEL_INVALID : v1::REASON_WORKER_OOM);
      failed.set_message("as the script says");
      failed.set_wanted_bytes(8 << 20);
      failed.set_in_use_bytes(2 << 20);
      failed.set_limit_bytes(4 << 20);
      Send(frame);
      ::_exit(0);
    }
    Crash(load_fault_);
  }

  void Turn() {
    bool active = false;
    for (const auto& [handle, generation] : generations_) active = active || !generation.paused;
    const auto received = socket_.Receive(active ? milliseconds(pace_ms_) : milliseconds(100));
    if (received.ok()) return Handle(received->bytes);
    if (ReasonOf(received.status()) != Reason::kDeadlineExceeded) ::_exit(ipc::kWorkerExitDaemonGone);
    const auto copy = generations_;
    for (const auto& [handle, generation] : copy) {
      if (!generation.paused) Produce(handle);
    }
    v1::WorkerFrame frame;
    frame.mutable_heartbeat()->set_progress(progress_);
    frame.mutable_heartbeat()->set_phase(active ? "decode" : "idle");
    Send(frame);
  }

  void Handle(const std::string& bytes) {
    v1::DaemonFrame frame;
    if (!frame.ParseFromString(bytes)) ::_exit(72);
    if (frame.has_generate()) Begin(frame.generate());
    if (frame.has_pause() && generations_.contains(frame.pause().handle())) {
      generations_[frame.pause().handle()].paused = frame.pause().paused();
    }
    if (frame.has_cancel() && generations_.contains(frame.cancel().handle())) {
      if (generations_[frame.cancel().handle()].fault == "deaf") return;
      End(frame.cancel().handle(), v1::FINISH_REASON_CANCELLED);
    }
    if (frame.has_tokenize()) {
      v1::WorkerFrame answer;
      answer.mutable_tokenized()->set_handle(frame.tokenize().handle());
      for (const char byte : frame.tokenize().text()) answer.mutable_tokenized()->add_ids(byte);
      Send(answer);
    }
    if (frame.has_shutdown()) ::_exit(0);
  }

  void Begin(const v1::WorkerGenerate& generate) {
    // A replay says its prompt in ids: the bytes of the text.
    std::string prompt = generate.prompt();
    for (const int32_t id : generate.token_ids().ids()) prompt += static_cast<char>(id);
    std::istringstream words(prompt);
    Generation generation;
    words >> generation.fault >> generation.count;
    for (const int32_t id : generate.resume_ids()) {
      if (id != generation.produced++) ::_exit(79);  // not what this worker said
    }
    if (generation.fault == "ignore_term") ::signal(SIGTERM, SIG_IGN);
    if (generation.fault == "drip") pace_ms_ = 30;
    if (generation.fault == "grow") Grow(static_cast<size_t>(std::exchange(generation.count, 100000)) << 20);
    v1::WorkerFrame frame;
    frame.mutable_started()->set_handle(generate.handle());
    for (const char byte : prompt) frame.mutable_started()->add_prompt_ids(byte);
    frame.mutable_started()->set_context(configure_.context());
    if (generation.fault != "unanswered") Send(frame);
    if (generation.fault == "started_twice") Send(frame);
    generations_[generate.handle()] = generation;
  }

  void Grow(size_t bytes) {
    pace_ms_ = 30;
    grown_.resize(grown_.size() + bytes, 'x');
  }

  void Produce(uint64_t handle) {
    Generation& generation = generations_[handle];
    if (generation.fault == "unanswered") return;
    const bool due = generation.produced == generation.count;
    const bool honest = generation.fault == "count" || generation.fault == "drip" || generation.fault == "grow" ||
                        generation.fault == "garbage" || generation.fault == "deaf" ||
                        generation.fault == "ignore_term";
    if (due) {
      if (honest) return End(handle, v1::FINISH_REASON_LENGTH);
      return Misbehave(handle, generation.fault);
    }
    ++progress_;
    v1::WorkerFrame frame;
    v1::SequenceStep& step = *frame.mutable_step()->add_sequences();
    step.set_handle(handle);
    step.set_index(static_cast<uint64_t>(generation.produced));
    step.set_text(std::to_string(generation.produced) + " ");
    step.add_tokens()->set_id(generation.produced++);
    if (generation.fault == "garbage") (void)!::write(STDOUT_FILENO, "garbage\n", 8);
    Send(frame);
    // At once, before it could read what comes next.
    if (generation.fault == "freeze" && generation.produced == generation.count) Freeze();
  }

  v1::WorkerFrame EndFrame(uint64_t handle, v1::FinishReason reason) {
    v1::WorkerFrame frame;
    v1::SequenceStep& step = *frame.mutable_step()->add_sequences();
    step.set_handle(handle);
    step.set_index(static_cast<uint64_t>(generations_[handle].produced));
    step.set_finish_reason(reason);
    step.mutable_usage()->set_prompt_tokens(1);
    step.mutable_usage()->set_completion_tokens(static_cast<uint32_t>(generations_[handle].produced));
    return frame;
  }
  void End(uint64_t handle, v1::FinishReason reason) {
    Send(EndFrame(handle, reason));
    generations_.erase(handle);
  }

  void Misbehave(uint64_t handle, const std::string& fault) {
    if (fault == "half_frame") {
      SendRaw(std::string("\x40\x00\x00\x00half", 8));
      ::_exit(0);
    }
    if (fault == "giant") {
      SendRaw(std::string("\xff\xff\xff\x7f", 4));
      Freeze();
    }
    if (fault == "wrong_id") {
      v1::WorkerFrame frame = EndFrame(handle, v1::FINISH_REASON_STOP);
      frame.mutable_step()->mutable_sequences(0)->set_handle(handle + 1000);
      Send(frame);
      Freeze();
    }
    if (fault == "wrong_index" || fault == "failed_wrong_index") {
      v1::WorkerFrame frame = EndFrame(handle, v1::FINISH_REASON_STOP);
      v1::SequenceStep& step = *frame.mutable_step()->mutable_sequences(0);
      step.set_index(99);
      if (fault == "failed_wrong_index") {
        step.clear_finish_reason();
        step.set_error_reason(v1::REASON_INTERNAL);
        step.set_text("late");
      }
      Send(frame);
      Freeze();
    }
    if (fault == "two_terminals" || fault == "after_terminal") {
      v1::WorkerFrame frame = EndFrame(handle, v1::FINISH_REASON_STOP);
      Send(frame);
      if (fault == "after_terminal") {
        frame.mutable_step()->mutable_sequences(0)->clear_finish_reason();
        frame.mutable_step()->mutable_sequences(0)->set_text("late");
      }
      Send(frame);
      Freeze();
    }
    if (fault == "done_then_exit") {
      Send(EndFrame(handle, v1::FINISH_REASON_STOP));
      ::_exit(3);
    }
    if (fault == "close_socket") {
      ::close(socket_.fd());
      Freeze();
    }
    Crash(fault);
  }

  ipc::BlockingFrameSocket socket_;
  std::map<std::string, std::string> script_;
  std::string load_fault_;
  v1::Configure configure_;
  std::map<uint64_t, Generation> generations_;
  uint64_t progress_ = 0;
  int pace_ms_ = 1;
  std::vector<char> grown_;
};

}  // namespace
}  // namespace bulkhead

// Sanitizers ask for these by name. A signal that is meant must end this process as that signal, also where a sanitizer
// would turn it into a report and an exit code; the daemon gives its workers no environment to say so in.
extern "C" {
const char* SignalsAreMeant() { return "handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:handle_abort=0"; }
const char* __asan_default_options() { return SignalsAreMeant(); }   // NOLINT(bugprone-reserved-identifier)
const char* __tsan_default_options() { return SignalsAreMeant(); }   // NOLINT(bugprone-reserved-identifier)
const char* __ubsan_default_options() { return SignalsAreMeant(); }  // NOLINT(bugprone-reserved-identifier)
}

int main(int argc, char** argv) {
  // No core files from crashes that are meant.
  const struct rlimit none = {0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  if (argc > 1 && std::strcmp(argv[1], bulkhead::ipc::kInspectFrameArgument) == 0) return bulkhead::Inspect();
  bulkhead::FakeWorker().Run();
}
