#include "tests/faults/harness.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace bulkhead::supervisor::test {

using std::chrono::milliseconds;

bool Recording::Saw(std::string_view event) const {
  return std::any_of(events.begin(), events.end(),
                     [&](const std::string& seen) { return std::string_view(seen).substr(0, event.size()) == event; });
}

void RecordingSink::Add(std::string event) {
  if (recording_->ended()) recording_->after_terminal = true;
  recording_->events.push_back(std::move(event));
}

void RecordingSink::OnStarted(const StartedEvent& event) {
  Add("started");
  recording_->allocation_id = event.allocation_id;
  recording_->seed = event.seed;
}

void RecordingSink::OnResumed(const ResumedEvent& event) {
  Add(fmt::format("resumed {} {}{}", event.attempt, NameOf(event.reason), event.exact ? "" : " inexact"));
}

void RecordingSink::OnDelta(const DeltaEvent& delta) {
  Add(fmt::format("delta {} {}", delta.index, delta.text));
  recording_->text += delta.text;
  for (const v1::Token& token : delta.tokens) recording_->ids.push_back(token.id());
}

void RecordingSink::OnDone(const DoneEvent& done) {
  Add("done " + v1::FinishReason_Name(done.finish_reason));
  ++recording_->terminals;
  recording_->done = done;
}

void RecordingSink::OnError(const OffloadError& error) {
  Add(fmt::format("error {}", NameOf(error.reason)));
  ++recording_->terminals;
  recording_->error = error;
}

SupervisionSettings QuickSettings() {
  SupervisionSettings settings;
  settings.deadlines.drain = milliseconds(300);
  settings.deadlines.cancel = milliseconds(200);
  settings.deadlines.term = milliseconds(200);
  settings.deadlines.confirm = milliseconds(2000);
  settings.deadlines.client_stall = milliseconds(300);
  settings.watchdog.hello = milliseconds(2000);
  settings.watchdog.load = milliseconds(1000);
  settings.watchdog.prefill = milliseconds(1000);
  settings.watchdog.token = milliseconds(600);
  settings.breaker.deaths = 1000;
  settings.model.context = 512;
  settings.idle_release = Duration(0);
  settings.fence_off = true;
  return settings;
}

Harness::Harness(std::string worker, SupervisionSettings settings, const Clock* clock)
    : worker_(std::move(worker)), settings_(std::move(settings)), clock_(clock) {
  char name[] = "/tmp/bulkhead-faults-XXXXXX";
  directory_ = ::mkdtemp(name);
  uv_loop_init(&loop_);
  Up();
}

Harness::~Harness() {
  Down();
  EXPECT_EQ(uv_loop_close(&loop_), 0) << "handles were left open";
  std::filesystem::remove_all(directory_);
}

void Harness::Up() {
  auto launcher = PosixLauncher::Create({worker_});
  if (!launcher.ok()) {
    ADD_FAILURE() << Message(launcher.status());
    std::abort();
  }
  launcher_ = std::make_unique<DeafLauncher>(std::move(*launcher));
  WorkerOffload::Options options;
  options.loop = &loop_;
  options.launcher = launcher_.get();
  options.clock = clock_;
  options.memory = &machine;
  options.state_directory = directory_;
  options.settings = settings_;
  options.policy = [this] { return policy; };
  options.warn = [this](std::string text) { warnings_.push_back(std::move(text)); };
  options.observer = [this](const LifecycleEvent& event) {
    log_.push_back(fmt::format("{} {} {}", event.subject, event.what, event.detail));
  };
  auto offload = WorkerOffload::Create(std::move(options));
  offload_ = std::move(*offload);
}

void Harness::Down() {
  bool stopped = false;
  offload_->Shutdown(milliseconds(0), [&] { stopped = true; });
  EXPECT_TRUE(RunUntil([&] { return stopped; })) << "shutdown did not come to an end";
  offload_.reset();
  for (int turns = 0; turns < 60000 && uv_run(&loop_, UV_RUN_NOWAIT) != 0; ++turns) ::usleep(1000);
}

void Harness::Restart() {
  Down();
  Up();
}

size_t Harness::Logged(const std::string& subject, const std::string& what) const {
  const std::string prefix = subject + " " + what + " ";
  for (size_t i = 0; i < log_.size(); ++i) {
    if (log_[i].compare(0, prefix.size(), prefix) == 0) return i;
  }
  return std::string::npos;
}

bool Harness::RunUntil(const std::function<bool()>& condition, milliseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  // So that a turn of the loop never waits past the limit. Freed by its own close callback.
  auto* tick = new uv_timer_t;
  uv_timer_init(&loop_, tick);
  uv_timer_start(
      tick, [](uv_timer_t*) {}, 10, 10);
  bool held = condition();
  while (!held && std::chrono::steady_clock::now() < until) {
    uv_run(&loop_, UV_RUN_ONCE);
    held = condition();
  }
  uv_close(reinterpret_cast<uv_handle_t*>(tick),
           [](uv_handle_t* handle) { delete reinterpret_cast<uv_timer_t*>(handle); });
  uv_run(&loop_, UV_RUN_NOWAIT);
  return held;
}

ModelSource Harness::Script(const std::string& name, const std::string& load_fault) {
  const std::string path = directory_ + "/" + name + ".gguf";
  std::ofstream file(path);
  file << "name " << name << "\n";
  if (!load_fault.empty()) {
    const std::string flag = directory_ + "/" + name + ".flag";
    std::ofstream(flag) << "1";
    file << "load " << load_fault << "\nflag " << flag << "\n";
  }
  file.close();
  return Open(name, path);
}

ModelSource Harness::Open(const std::string& name, const std::string& path) {
  ModelSource model;
  model.name = name;
  model.file = std::make_shared<UniqueFd>(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return model;
}

std::shared_ptr<Recording> Harness::Stream(const ModelSource& model, const std::string& prompt, std::string* id,
                                           const std::function<void(OffloadRequest&)>& change) {
  auto recording = std::make_shared<Recording>();
  OffloadRequest request;
  request.model = model;
  request.input = prompt;
  request.on_worker_death = v1::ON_WORKER_DEATH_FAIL;
  if (change) change(request);
  const std::string assigned = offload_->Stream(std::move(request), std::make_unique<RecordingSink>(recording));
  if (id != nullptr) *id = assigned;
  return recording;
}

std::shared_ptr<Recording> Harness::Resuming(const ModelSource& model, const std::string& prompt, std::string* id) {
  return Stream(model, prompt, id,
                [](OffloadRequest& request) { request.on_worker_death = v1::ON_WORKER_DEATH_RESUME; });
}

std::shared_ptr<Recording> Harness::Finish(const ModelSource& model, const std::string& prompt) {
  auto recording = Stream(model, prompt);
  EXPECT_TRUE(RunUntil([&] { return recording->ended(); })) << prompt << " never ended";
  return recording;
}

std::vector<pid_t> Harness::Pids() {
  std::vector<pid_t> pids;
  for (const ResidentModel& model : offload_->ResidentModels()) {
    if (model.pid > 0) pids.push_back(model.pid);
  }
  return pids;
}

int DescriptorCount() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

bool ProcessExists(pid_t pid) { return std::filesystem::exists(fmt::format("/proc/{}", pid)); }

}  // namespace bulkhead::supervisor::test
