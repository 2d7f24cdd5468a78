// Any frames as what a worker says, to a whole supervisor with three requests for it, while others cancel, pause,
// terminate and release. What it looks for beside crashes: a request with no terminal, with two, or with anything after
// it; a process that is not reaped; a charge that stays.
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/build_id.h"
#include "bulkhead/v1/worker.pb.h"
#include "ipc/frame.h"
#include "supervisor/worker_offload.h"
#include "tests/fuzz/script.h"
#include "tests/simulation/processes.h"
#include "tests/simulation/worker.h"

namespace bulkhead::fuzz {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct Ending {
  int terminals = 0;
  uint64_t next_index = 0;
};

class Sink final : public supervisor::StreamSink {
 public:
  explicit Sink(Ending& ending) : ending_(ending) {}
  void OnQueued(const supervisor::QueuedEvent&) override { Event(); }
  void OnLoading(const supervisor::LoadingEvent&) override { Event(); }
  void OnStarted(const supervisor::StartedEvent&) override { Event(); }
  void OnDelta(const supervisor::DeltaEvent& delta) override {
    Event();
    if (delta.index != ending_.next_index) abort();
    ending_.next_index += delta.tokens.size();
  }
  void OnDone(const supervisor::DoneEvent&) override { Terminal(); }
  void OnError(const supervisor::OffloadError&) override { Terminal(); }

 private:
  void Event() {
    if (ending_.terminals > 0) abort();
  }
  void Terminal() {
    if (++ending_.terminals > 1) abort();
  }
  Ending& ending_;
};

class World {
 public:
  World() : memory_(launcher_) {
    uv_loop_init(&loop_);
    memory_.machine = {uint64_t{64} << 30, uint64_t{48} << 30, std::nullopt};
    supervisor::WorkerOffload::Options options;
    options.loop = &loop_;
    options.clock = &clock_;
    options.launcher = &launcher_;
    options.memory = &memory_;
    options.settings.breaker.deaths = 1000;
    options.settings.model.context = 512;
    offload_ = *supervisor::WorkerOffload::Create(std::move(options));
    model_.name = "m";
    static const int file = [] {
      char name[] = "/tmp/worker-frame-fuzz-XXXXXX";
      const int fd = ::mkstemp(name);
      ::unlink(name);
      return fd;
    }();
    model_.file = std::make_shared<UniqueFd>(::dup(file));
  }
  ~World() {
    offload_.reset();
    uv_run(&loop_, UV_RUN_DEFAULT);
    if (uv_loop_close(&loop_) != 0) abort();
  }

  void Run(Script& script) {
    for (Ending& ending : endings_) Begin(ending);
    Turn();
    while (const auto move = script.Next()) {
      Others(move->control >> 5);
      Speak(move->control & 31, move->payload);
      Turn();
    }
    bool stopped = false;
    offload_->Shutdown(milliseconds(0), [&stopped] { stopped = true; });
    for (int i = 0; i < 50 && !stopped; ++i) {
      Turn();
      Advance(seconds(10));
    }
    if (!stopped || !launcher_.processes().empty() || !launcher_.violations().empty()) abort();
    for (const Ending& ending : endings_) {
      if (ending.terminals != 1) abort();
    }
    if (offload_->Budget().charged_bytes != 0) abort();
  }

 private:
  void Begin(Ending& ending) {
    supervisor::OffloadRequest request;
    request.inference_id = "r" + std::to_string(&ending - endings_.data());
    request.model = model_;
    request.input = std::string("prompt");
    request.sampling.set_seed(7);
    offload_->Stream(std::move(request), std::make_unique<Sink>(ending));
  }

  // What everybody else does meanwhile.
  void Others(int what) {
    const std::string id = "r" + std::to_string(what % 3);
    if (what == 1) offload_->Cancel(id, supervisor::CancelCause::kOwner);
    if (what == 2) offload_->Pause(id, paused_ = !paused_);
    if (what == 3) offload_->TerminateInference(id, [](const supervisor::InferenceTerminationAck&) {});
    if (what == 4) offload_->ReleaseModel("m", {}, [](const absl::StatusOr<bool>&) {});
    if (what == 5) Advance(milliseconds(700));
    if (what == 6) Advance(seconds(30));
  }

  // The newest worker says it. Inspectors answer as they should.
  void Speak(int how, std::string_view payload) {
    for (auto& [pid, process] : launcher_.processes()) {
      if (process->inspects && process->alive()) sim::Worker(*process).Act();
    }
    if (launcher_.processes().empty()) return;
    sim::Process& process = *launcher_.processes().rbegin()->second;
    if (process.inspects || !process.alive()) return;
    if (how == 1) return process.End({-1, SIGSEGV});
    if (how == 2) return process.End({0, 0});
    if (how == 3) return Send(process, payload);
    if (how == 4) (void)!::write(process.errors.get(), payload.data(), payload.size());
    // The two frames without which nothing else is listened to.
    if (how == 5) {
      v1::WorkerFrame hello;
      hello.mutable_hello()->set_build(std::string(BuildId()));
      Send(process, *ipc::EncodeFrame(hello));
    } else if (how == 6) {
      v1::WorkerFrame ready;
      ready.mutable_ready()->set_context(512);
      ready.mutable_ready()->set_sequences(4);
      Send(process, *ipc::EncodeFrame(ready));
    }
    if (!payload.empty()) Send(process, ipc::EncodePayload(payload));
  }

  static void Send(sim::Process& process, std::string_view bytes) {
    (void)::send(process.control.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }

  void Turn() {
    for (int i = 0; i < 6; ++i) uv_run(&loop_, UV_RUN_NOWAIT);
  }
  void Advance(Duration by) {
    clock_.Advance(by);
    offload_->RunDueTimers();
    Turn();
  }

  uv_loop_t loop_ = {};
  FakeClock clock_;
  sim::Launcher launcher_;
  sim::Memory memory_;
  std::unique_ptr<supervisor::WorkerOffload> offload_;
  supervisor::ModelSource model_;
  std::array<Ending, 3> endings_;
  bool paused_ = false;
};

}  // namespace
}  // namespace bulkhead::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  bulkhead::fuzz::Script script(data, size);
  bulkhead::fuzz::World().Run(script);
  return 0;
}
