#include "daemon/manager.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/sys.h"
#include "daemon/background.h"
#include "daemon/config_keys.h"
#include "daemon/doctor.h"
#include "daemon/log.h"
#include "supervisor/lifecycle.h"

namespace bulkhead::daemon {
namespace {

// STATUS= is for people: not more often than this.
constexpr uint64_t kStatusEveryMs = 1000;
// What flushing the last answers may take on top of the configured deadlines.
constexpr Duration kStopReserve = std::chrono::seconds(10);

template <typename Handle>
void CloseHandle(Handle* handle) {
  auto* base = reinterpret_cast<uv_handle_t*>(handle);
  if (!uv_is_closing(base)) uv_close(base, nullptr);
}

// A list as a client writes it: "a,b".
std::vector<std::string> SplitList(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size() && !text.empty();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

supervisor::SupervisionSettings SettingsOf(const Config& config) {
  supervisor::SupervisionSettings out;
  out.queue = {config.queue.per_model, config.queue.total, config.queue.wait, config.queue.ageing};
  out.deadlines.drain = config.deadlines.drain;
  out.deadlines.cancel = config.deadlines.cancel;
  out.deadlines.term = config.deadlines.term;
  out.deadlines.confirm = config.deadlines.confirm;
  out.deadlines.client_stall = config.deadlines.client_stall;
  out.watchdog.load = config.watchdog.load;
  out.watchdog.prefill = config.watchdog.prefill;
  out.watchdog.token = config.watchdog.token;
  out.breaker.deaths = config.breaker.deaths;
  out.breaker.window = config.breaker.window;
  out.breaker.backoff = config.breaker.backoff;
  out.breaker.max_backoff = config.breaker.max_backoff;
  out.breaker.healthy = config.breaker.healthy;
  out.model.context = config.model.context;
  out.model.sequences = config.model.sequences;
  out.model.kv_type = config.model.kv_type;
  out.model.threads = config.model.threads;
  out.idle_release = config.residency.idle_release;
  return out;
}

Manager::Manager(Options options)
    : loop_(options.loop),
      descriptors_(options.descriptors),
      sources_(std::move(options.sources)),
      loaded_(std::move(options.loaded)),
      access_(sys::GetEuid(), options.admin_group),
      listening_(std::move(options.listening)),
      own_socket_path_(std::move(options.own_socket_path)),
      sockets_(options.loop),
      catalogue_(options.loop, loaded_.config.paths.models),
      clock_(options.clock == nullptr ? SystemClock() : *options.clock),
      launcher_(options.launcher),
      memory_(options.memory) {
  for (uv_signal_t* signal : {&term_, &interrupt_, &hangup_, &restart_}) {
    uv_signal_init(loop_, signal);
    signal->data = this;
  }
  for (uv_timer_t* timer : {&watchdog_, &status_}) {
    uv_timer_init(loop_, timer);
    timer->data = this;
  }
}

Manager::~Manager() {
  for (uv_signal_t* signal : {&term_, &interrupt_, &hangup_, &restart_}) CloseHandle(signal);
  for (uv_timer_t* timer : {&watchdog_, &status_}) CloseHandle(timer);
  server_.reset();
  offload_.reset();
  inferences_.reset();
  // The handles live in this object: their close callbacks come before it goes.
  uv_run(loop_, UV_RUN_DEFAULT);
}

absl::StatusOr<std::unique_ptr<Manager>> Manager::Create(Options options) {
  UniqueFd earlier = std::move(options.records);
  const bool keep = options.keep_records;
  auto manager = std::unique_ptr<Manager>(new Manager(std::move(options)));
  manager->OpenRecords(std::move(earlier), keep);
  RETURN_IF_ERROR(manager->CreateOffload());
  return manager;
}

absl::Status Manager::CreateOffload() {
  if (launcher_ == nullptr) {
    supervisor::PosixLauncher::Options launch;
    launch.worker_path = loaded_.config.paths.worker;
    cgroup_ = supervisor::CgroupTree::AdoptOwn();
    launch.cgroups = cgroup_.tree.get();
    LogInfo(fmt::format("cgroup: {}", cgroup_.why));
    ASSIGN_OR_RETURN(own_launcher_, supervisor::PosixLauncher::Create(std::move(launch)));
    launcher_ = own_launcher_.get();
  }
  if (memory_ == nullptr) {
    own_memory_ = supervisor::MakeProcMemoryProbe();
    memory_ = own_memory_.get();
  }
  supervisor::WorkerOffload::Options options;
  options.loop = loop_;
  options.clock = &clock_;
  options.launcher = launcher_;
  options.memory = memory_;
  options.state_directory = loaded_.config.paths.state;
  options.settings = SettingsOf(loaded_.config);
  options.policy = [this] {
    return supervisor::ResourcePolicy{generation_, loaded_.config.budget.profile, loaded_.config.budget.bytes};
  };
  options.observer = [this](const supervisor::LifecycleEvent& event) { OnLifecycle(event); };
  options.warn = [](const std::string& line) { LogWarning(line); };
  ASSIGN_OR_RETURN(offload_, supervisor::WorkerOffload::Create(std::move(options)));
  inferences_ = std::make_unique<InferenceTable>(loop_, clock_, *offload_, records_.get());
  services_ = std::make_unique<Services>(
      Services{sockets_, clock_, *offload_, catalogue_, *inferences_, uids_, events_, *this, descriptors_});
  server_ = std::make_unique<Server>(*services_);
  return absl::OkStatus();
}

absl::Status Manager::Start() {
  RETURN_IF_ERROR(WatchSignals());
  // Before the first client: it may come for one of them.
  RestoreRequests();
  RETURN_IF_ERROR(server_->Listen(std::move(listening_)));
  WatchLoop();
  catalogue_.Rescan([](const std::shared_ptr<const ModelScan>& scan) {
    for (const std::string& problem : scan->problems) LogWarning(fmt::format("models: {}", problem));
    LogInfo(fmt::format("{} models in the catalogue", scan->models.size()));
  });
  Preload();
  if (const std::string problem = degraded(); !problem.empty()) LogWarning(fmt::format("degraded: {}", problem));
  LogInfo(fmt::format("serving on {}", loaded_.config.paths.socket));
  service_.Ready(StatusLine());
  return absl::OkStatus();
}

sigset_t Manager::HandledSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR2}) sigaddset(&set, number);
  return set;
}

absl::Status Manager::WatchSignals() {
  const auto stop = [](uv_signal_t* handle, int) { static_cast<Manager*>(handle->data)->Stop(); };
  const auto reload = [](uv_signal_t* handle, int) {
    static_cast<Manager*>(handle->data)->Reload([](const absl::Status&) {});
  };
  const auto restart = [](uv_signal_t* handle, int) { static_cast<Manager*>(handle->data)->HandOver(); };
  for (const int error : {uv_signal_start(&term_, stop, SIGTERM), uv_signal_start(&interrupt_, stop, SIGINT),
                          uv_signal_start(&hangup_, reload, SIGHUP), uv_signal_start(&restart_, restart, SIGUSR2)}) {
    if (error < 0) return ErrnoError(-error, "uv_signal_start");
  }
  // Also where whoever started us had them blocked.
  const sigset_t handled = HandledSignals();
  pthread_sigmask(SIG_UNBLOCK, &handled, nullptr);
  return absl::OkStatus();
}

// A timer of the loop itself: it rings only while the loop comes round.
void Manager::WatchLoop() {
  const auto interval = service_.WatchdogInterval();
  if (!interval) return;
  const auto milliseconds =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(*interval).count());
  uv_timer_start(
      &watchdog_, [](uv_timer_t* timer) { static_cast<Manager*>(timer->data)->service_.Alive(); }, milliseconds,
      milliseconds);
}

void Manager::Preload() {
  for (const std::string& name : loaded_.config.residency.preload) {
    catalogue_.Open(name, [this, name](absl::StatusOr<OpenedModel> opened) {
      if (!opened.ok()) return LogWarning(fmt::format("preload: {}", Message(opened.status())));
      if (stopping_) return;
      supervisor::LoadSpec spec;
      spec.model = {opened->name, opened->file, false, 0};
      spec.uid = sys::GetEuid();
      offload_->Load(
          std::move(spec), [](const supervisor::LoadingEvent&) {},
          [name](const absl::StatusOr<supervisor::LoadResult>& result) {
            if (!result.ok()) LogWarning(fmt::format("preload {}: {}", name, NameOf(ReasonOf(result.status()))));
          });
    });
  }
}

std::string Manager::degraded() const {
  std::string text = offload_->Degraded();
  if (!config_problem_.empty()) text += (text.empty() ? "" : "; ") + config_problem_;
  return text;
}

absl::Status Manager::SetPolicy(const std::vector<Setting>& settings) {
  std::vector<Setting> checked = settings;
  for (Setting& setting : checked) {
    const ConfigKey* key = FindConfigKey(setting.name);
    const bool fixed =
        key != nullptr && (key->start_only || key->name.starts_with("paths.") || key->name.starts_with("access."));
    if (fixed) {
      return Error(Reason::kInvalidRequest, fmt::format("{}: can be set in the configuration file only", setting.name));
    }
    if (key != nullptr && std::holds_alternative<ListKey>(key->kind) && setting.values.size() == 1) {
      setting.values = SplitList(setting.values.front());
    }
  }
  ASSIGN_OR_RETURN(LoadedConfig next, Apply(loaded_, checked));
  PutInForce(std::move(next), access_);
  return absl::OkStatus();
}

void Manager::Reload(std::function<void(absl::Status)> done) {
  struct Result {
    absl::StatusOr<LoadedConfig> loaded = Error(Reason::kInternal, "not read");
    std::optional<gid_t> admin_group;
  };
  if (reloading_ || stopping_) return done(Error(Reason::kShuttingDown, "a reload or a stop is under way"));
  reloading_ = true;
  service_.Reloading();
  auto result = std::make_shared<Result>();
  RunInBackground(
      loop_,
      [result, sources = sources_] {
        result->loaded = sources.Load();
        if (!result->loaded.ok()) return;
        const auto group = ResolveGroup(result->loaded->config.access.admin_group);
        group.ok() ? void(result->admin_group = *group) : void(result->loaded = group.status());
      },
      [this, result, done = std::move(done)] {
        reloading_ = false;
        if (result->loaded.ok()) {
          config_problem_.clear();
          const auto restart = NeedRestart(loaded_.config, result->loaded->config);
          if (!restart.empty())
            LogWarning(fmt::format("reload: {} change at a restart only", fmt::join(restart, ", ")));
          PutInForce(KeepStartOnly(loaded_, *std::move(result->loaded)), Access(sys::GetEuid(), result->admin_group));
          LogInfo(fmt::format("configuration reloaded, generation {}", generation_));
        } else {
          config_problem_ =
              fmt::format("configuration not reloaded, the old one is in force: {}", Message(result->loaded.status()));
          LogError(config_problem_);
        }
        service_.Ready(StatusLine());
        done(result->loaded.status());
      });
}

void Manager::PutInForce(LoadedConfig next, const Access& access) {
  loaded_ = std::move(next);
  access_ = access;
  ++generation_;
  SetLogLevel(loaded_.config.log.level);
  catalogue_.set_directories(loaded_.config.paths.models);
  offload_->SetSettings(SettingsOf(loaded_.config));
  offload_->RefreshResourcePolicy(generation_);
  ApplyPins();
}

void Manager::ApplyPins() {
  for (const std::string& model : loaded_.config.residency.pin) offload_->SetPinned(model, true);
}

void Manager::OnLifecycle(const supervisor::LifecycleEvent& event) {
  // The detail may quote a worker: it goes to those who may ask for events, not into the log.
  const std::string line = fmt::format("{} {} model {}", event.subject, event.what, event.model);
  // Of a request's life the log keeps its end and its hand-over to a worker.
  using State = supervisor::RequestState;
  const auto passing = {State::kQueued, State::kAdmitted, State::kDecode, State::kPaused};
  const bool minor =
      std::any_of(passing.begin(), passing.end(), [&](State state) { return event.what == supervisor::NameOf(state); });
  minor ? LogDebug(line) : LogInfo(line);
  const auto& pins = loaded_.config.residency.pin;
  if (std::find(pins.begin(), pins.end(), event.model) != pins.end()) offload_->SetPinned(event.model, true);
  events_.Publish(event);
  if (status_due_ || stopping_) return;
  status_due_ = true;
  uv_timer_start(
      &status_, [](uv_timer_t* timer) { static_cast<Manager*>(timer->data)->OnStatusDue(); }, kStatusEveryMs, 0);
}

void Manager::OnStatusDue() {
  status_due_ = false;
  if (!stopping_) service_.Status(StatusLine());
}

std::string Manager::StatusLine() const {
  const std::string problem = degraded();
  return fmt::format("serving; {} models resident, {} requests; workers in {}{}{}", offload_->ResidentModels().size(),
                     offload_->Requests().size(),
                     cgroup_.tree != nullptr ? "cgroup leaves" : "process groups with RLIMIT_DATA, no cgroup delegated",
                     problem.empty() ? "" : "; degraded: ", problem);
}

void Manager::Doctor(std::function<void(v1::DoctorReply)> done) {
  DoctorInputs inputs;
  inputs.model_directories = loaded_.config.paths.models;
  inputs.state_directory = loaded_.config.paths.state;
  inputs.socket = loaded_.config.paths.socket;
  inputs.worker = loaded_.config.paths.worker;
  inputs.degraded = degraded();
  inputs.cgroup = cgroup_.why;
  inputs.delegated = cgroup_.tree != nullptr;
  inputs.watched = service_.WatchdogInterval().has_value();
  inputs.activated = own_socket_path_.empty();
  offload_->MeasureMaps([this, inputs = std::move(inputs), done = std::move(done)]() mutable {
    inputs.resources = offload_->Resources();
    inputs.models = offload_->ResidentModels();
    auto reply = std::make_shared<v1::DoctorReply>();
    RunInBackground(
        loop_, [inputs = std::move(inputs), reply] { *reply = Examine(inputs); },
        [reply, done = std::move(done)] { done(std::move(*reply)); });
  });
}

void Manager::Stop() {
  if (stopping_) return Hurry();
  stopping_ = true;
  const Duration drain = loaded_.config.deadlines.drain;
  LogInfo(fmt::format("stopping: {} requests have {} ms", offload_->Requests().size(),
                      std::chrono::duration_cast<std::chrono::milliseconds>(drain).count()));
  const Config::Deadlines& deadlines = loaded_.config.deadlines;
  service_.Stopping("stopping: draining requests",
                    drain + deadlines.cancel + deadlines.term + deadlines.confirm + kStopReserve);
  server_->StopListening();
  if (!own_socket_path_.empty()) (void)sys::Unlink(own_socket_path_.c_str());
  offload_->Shutdown(std::chrono::duration_cast<std::chrono::milliseconds>(drain), [this] { Stopped(); });
}

void Manager::HandOver() {
  if (!stopping_ && records_ != nullptr) {
    LogInfo("handing the requests on record over to the next daemon");
    inferences_->HandOver();
  }
  Stop();
}

void Manager::RunDueTimers() {
  if (offload_ != nullptr) offload_->RunDueTimers();
  if (inferences_ != nullptr) inferences_->ExpireDue();
}

void Manager::Hurry() {
  LogWarning("stopping at once: cancelling what still runs");
  if (offload_ != nullptr) offload_->Shutdown(std::chrono::milliseconds(0), [] {});
}

// Every request has its answer in its session's queue by now.
void Manager::Stopped() {
  LogInfo("stopped: every request was answered and every worker is gone");
  server_->FinishSessions();
  for (uv_signal_t* signal : {&term_, &interrupt_, &hangup_, &restart_}) CloseHandle(signal);
  for (uv_timer_t* timer : {&watchdog_, &status_}) CloseHandle(timer);
  // Sent from the loop's own turn: the offload may be destroyed once its callback has returned.
  RunInBackground(
      loop_, [] {},
      [this] {
        inferences_.reset();
        offload_.reset();
      });
}

}  // namespace bulkhead::daemon
