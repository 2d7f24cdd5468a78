#include "tests/simulation/world.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <utility>

#include "ipc/unix_address.h"
#include "tests/simulation/faults.h"

namespace bulkhead::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Rounds of clock and workers within which everything has to come to its end.
constexpr int kMostRounds = 3000;
constexpr uint32_t kQueueTotal = 16;
constexpr uint64_t kQueuedBytes = 16 << 10;
constexpr uint64_t kReceivedBytes = 1 << 20;
constexpr uint32_t kInFlight = 6;

}  // namespace

World::World(uint64_t seed, std::string directory, Counts& counts, bool trace)
    : rng_(seed), directory_(std::move(directory)), counts_(counts), trace_(trace), memory_(launcher_) {
  SeedRandom(seed);
  ForgetFailures();
  CutTransfers(0, 1);
  InstallHooks();
  uv_loop_init(&loop_);
  std::filesystem::remove_all(directory_ + "/state");
  std::filesystem::create_directory(directory_ + "/state");
  memory_.machine = {16 * kGiB, 12 * kGiB, std::nullopt};
  launcher_.spawn_fault = [this](const supervisor::LaunchSpec&) {
    if (spawn_failures_ == 0) return 0;
    --spawn_failures_;
    return EAGAIN;
  };
  launcher_.launched_hook = [this](Process& process) {
    process.private_bytes = rng_.Between(8, 48) * kMiB;
    workers_[process.pid] = std::make_unique<Worker>(process);
  };
  launcher_.signal_at_once = [this](Process&, int) { return !late_signals_; };
}

World::~World() {
  if (manager_ != nullptr) KillDaemon();
  uv_run(&loop_, UV_RUN_DEFAULT);
  uv_loop_close(&loop_);
}

void World::Start() {
  daemon::Manager::Options options;
  options.loop = &loop_;
  options.clock = &clock_;
  options.launcher = &launcher_;
  options.memory = &memory_;
  options.sources.surroundings.environment["HOME"] = "/nonexistent";
  options.sources.file = directory_ + "/none.toml";
  options.loaded = daemon::DefaultConfig(options.sources.surroundings);
  daemon::Config& config = options.loaded.config;
  config.paths.models = {directory_ + "/models"};
  config.paths.state = directory_ + "/state";
  config.log.level = trace_ ? "debug" : "off";
  config.budget.profile = "custom";
  static constexpr uint64_t kBudgets[] = {400, 700, 4096};
  config.budget.bytes = kBudgets[rng_.Below(3)] * kMiB;
  config.model.context = 512;
  config.queue.per_model = 8;
  config.queue.total = kQueueTotal;
  config.breaker.deaths = 4;
  config.limits.in_flight_per_uid = kInFlight;
  config.limits.queued_bytes_per_uid = kQueuedBytes;
  config.limits.received_bytes_per_uid = kReceivedBytes;
  const std::string path = directory_ + "/s";
  auto listening = ipc::ListenUnix(path, 0600, 4);
  if (!listening.ok()) return Wrong(Message(listening.status()));
  options.listening = std::move(*listening);
  options.own_socket_path = path;
  auto manager = daemon::Manager::Create(std::move(options));
  if (!manager.ok()) return Wrong(Message(manager.status()));
  manager_ = std::move(*manager);
  if (const absl::Status started = manager_->Start(); !started.ok()) Wrong(Message(started));
  if (corrupted_.empty()) return;
  if (!std::filesystem::exists(directory_ + "/state/" + corrupted_ + ".corrupt")) {
    Wrong(fmt::format("a corrupt {} was not set aside", corrupted_));
  }
  corrupted_.clear();
}

// SIGKILL: connections break, workers go with their parent, nobody is told anything.
void World::KillDaemon() {
  for (const std::unique_ptr<Client>& client : clients_) client->Close();
  while (DoOnePieceOfWork()) {
  }
  manager_.reset();
  while (DoOnePieceOfWork()) {
  }
  launcher_.KillAll();
  workers_.clear();
  generations_.clear();
  keyed_.clear();
}

void World::Turns(int count) {
  for (int i = 0; i < count; ++i) uv_run(&loop_, UV_RUN_NOWAIT);
  Tend();
}

// Until the loop would sleep: nothing is posted, closing, ready to be read or written, or with the disk.
void World::Settle() {
  for (int i = 0; i < 2000; ++i) {
    if (!DoOnePieceOfWork()) {
      pollfd ready = {uv_backend_fd(&loop_), POLLIN, 0};
      if (uv_backend_timeout(&loop_) != 0 && ::poll(&ready, 1, 0) == 0) break;
    }
    uv_run(&loop_, UV_RUN_NOWAIT);
  }
  Tend();
}

void World::Advance(Duration by) {
  clock_.Advance(by);
  manager_->RunDueTimers();
}

// What happens by itself: clients move their bytes, ended connections and reaped processes are forgotten.
void World::Tend() {
  for (const std::unique_ptr<Client>& client : clients_) {
    client->Turn();
    TakeAnswers(*client);
    for (const std::string& violation : client->violations())
      Wrong(fmt::format("uid {}: {}", client->uid(), violation));
    for (const auto& [id, request] : client->waiting()) {
      if (request.inference_id.empty() || !request.oracle.has_value() || !request.asked.has_generate()) continue;
      const v1::GenerateRequest& asked = request.asked.generate();
      generations_[request.inference_id] = {client->uid(), asked.prompt(), asked.sampling().seed(),
                                            asked.limits().max_tokens(), asked.linger_ms() > 0};
    }
  }
  for (auto& [pid, worker] : workers_) {
    for (const std::string& violation : worker->violations()) Wrong(fmt::format("worker {}: {}", pid, violation));
  }
  std::erase_if(workers_, [this](const auto& entry) { return launcher_.Find(entry.first) == nullptr; });
  std::erase_if(clients_, [this](const std::unique_ptr<Client>& client) {
    if (!client->open()) digest_ = digest_ * 31 + client->digest();
    return !client->open();
  });
}

void World::TakeAnswers(Client& client) {
  for (const Client::Answer& answer : client.TakeAnswers()) {
    ++counts_.terminals;
    const v1::ServerFrame& frame = answer.frame;
    if (frame.has_done() && frame.done().finish_reason() != v1::FINISH_REASON_CANCELLED) {
      ++counts_.whole;
      if (answer.request.resumed > 0) ++counts_.of["done, whole, resumed"];
    }
    if (frame.has_error()) {
      const v1::Reason reason = frame.error().reason();
      ++counts_.of["error " + v1::Reason_Name(reason)];
      if (reason == v1::REASON_INTERNAL || reason == v1::REASON_UNSPECIFIED ||
          (reason == v1::REASON_WORKER_PROTOCOL_ERROR && !garbled_)) {
        Wrong(fmt::format("an error {}: {}", v1::Reason_Name(reason), frame.error().message()));
      }
    }
    const bool says_gone =
        (frame.has_release() && frame.release().unconfirmed().empty() && !frame.release().released().empty()) ||
        (frame.has_terminate() && frame.terminate().ack() == v1::TerminateReply::CONFIRMED);
    if (!says_gone) continue;
    for (const pid_t pid : answer.request.must_be_gone) {
      if (launcher_.Find(pid) != nullptr) {
        Wrong(fmt::format("{} was answered while pid {} is not reaped", frame.ShortDebugString(), pid));
      }
    }
  }
}

std::set<pid_t> World::PidsOf(const std::string& model) const {
  std::set<pid_t> pids;
  if (manager_->offload() == nullptr) return pids;
  for (const supervisor::ResidentModel& resident : manager_->offload()->ResidentModels()) {
    if (resident.model == model && resident.pid > 0) pids.insert(resident.pid);
  }
  return pids;
}

void World::Wrong(const std::string& what) {
  if (violation_.empty()) violation_ = fmt::format("step {}: {}", step_, what);
}

// What has to hold between any two events of the loop.
void World::Check(bool settled) {
  for (const std::string& violation : launcher_.violations()) Wrong(violation);
  if (manager_ == nullptr || manager_->offload() == nullptr) return;
  const std::vector<supervisor::ResidentModel> residents = manager_->offload()->ResidentModels();
  const supervisor::BudgetSnapshot budget = manager_->offload()->Budget();
  std::set<pid_t> listed;
  for (const supervisor::ResidentModel& resident : residents) {
    if (resident.pid > 0) {
      listed.insert(resident.pid);
      const auto [place, fresh] = allocations_.emplace(resident.allocation_id, resident.pid);
      if (!fresh && place->second != resident.pid) Wrong(fmt::format("id {} used twice", resident.allocation_id));
      if (launcher_.Find(resident.pid) == nullptr) Wrong(fmt::format("pid {} is listed and gone", resident.pid));
      if (resident.charge_bytes == 0) Wrong(fmt::format("{} runs uncharged", resident.allocation_id));
    }
    if (resident.in_flight > resident.sequences) {
      Wrong(fmt::format("{} has {} requests for {} sequences", resident.allocation_id, resident.in_flight,
                        resident.sequences));
    }
  }
  for (const auto& [pid, process] : launcher_.processes()) {
    if (!process->inspects && !listed.contains(pid)) Wrong(fmt::format("pid {} is nobody's", pid));
  }
  // A reservation is charged before its action was taken from the loop's queue.
  if (settled && residents.empty() && budget.charged_bytes != 0) {
    Wrong(fmt::format("{} bytes charged for nobody", budget.charged_bytes));
  }
  if (!policy_changed_ && budget.charged_bytes > budget.ceiling_bytes) {
    Wrong(fmt::format("{} bytes charged, ceiling {}", budget.charged_bytes, budget.ceiling_bytes));
  }
  CheckQueues();
  digest_ = digest_ * 31 + budget.charged_bytes + residents.size();
}

// Nothing that can be asked for often enough grows without a bound.
void World::CheckQueues() {
  const supervisor::BudgetSnapshot budget = manager_->offload()->Budget();
  if (budget.waiting > kQueueTotal) Wrong(fmt::format("{} wait in a queue of {}", budget.waiting, kQueueTotal));
  for (const uid_t uid : kUids) {
    const daemon::UidLedger& held = manager_->uids();
    const uint64_t queued = held.Held(uid, daemon::UidResource::kQueuedBytes);
    const uint64_t received = held.Held(uid, daemon::UidResource::kReceivedBytes);
    const uint64_t in_flight = held.Held(uid, daemon::UidResource::kInFlight);
    if (queued > kQueuedBytes) Wrong(fmt::format("uid {}: {} bytes wait to be read", uid, queued));
    if (received > kReceivedBytes) Wrong(fmt::format("uid {}: {} bytes wait to be begun", uid, received));
    if (in_flight > kInFlight) Wrong(fmt::format("uid {}: {} requests in flight", uid, in_flight));
  }
}

// All clients have left and everything has ended: what was taken has been given back.
void World::CheckIdle() {
  for (const uid_t uid : kUids) {
    for (size_t i = 0; i < daemon::kUidResources; ++i) {
      const uint64_t held = manager_->uids().Held(uid, static_cast<daemon::UidResource>(i));
      if (held != 0) Wrong(fmt::format("uid {} still holds {} of resource {}", uid, held, i));
    }
  }
}

bool World::Quiet() {
  for (const std::unique_ptr<Client>& client : clients_) {
    if (!client->waiting().empty()) return false;
  }
  return true;
}

std::string World::WhatIs() const {
  const supervisor::BudgetSnapshot budget = manager_->offload()->Budget();
  std::string text =
      fmt::format("\n  {} of {} bytes charged, {} promised, headroom {}, {} wait", budget.charged_bytes,
                  budget.ceiling_bytes, budget.promised_bytes, budget.live_headroom_bytes, budget.waiting);
  for (const supervisor::RequestInfo& info : manager_->offload()->Requests()) {
    text += fmt::format("\n  {} {} on '{}' {} ms", info.inference_id, info.state, info.allocation_id, info.age_ms);
  }
  for (const supervisor::ResidentModel& resident : manager_->offload()->ResidentModels()) {
    text += fmt::format("\n  {} {} pid {} in flight {}", resident.allocation_id, resident.state, resident.pid,
                        resident.in_flight);
  }
  return text;
}

// Everything is well again: what was accepted ends, and so does the daemon.
void World::Finish() {
  HealEverything();
  for (int round = 0; round < kMostRounds && !Quiet() && violation_.empty(); ++round) {
    for (auto& [pid, worker] : workers_) worker->Act();
    if (round % 8 == 7) Advance(milliseconds(250));
    Settle();
  }
  for (const std::unique_ptr<Client>& client : clients_) {
    for (const auto& [id, request] : client->waiting()) {
      Wrong(fmt::format("never ended: {} {}{}", request.inference_id, request.asked.ShortDebugString(), WhatIs()));
    }
  }
  Check(true);
  manager_->Stop();
  for (int round = 0; round < kMostRounds && manager_->offload() != nullptr; ++round) {
    for (auto& [pid, worker] : workers_) worker->Act();
    if (round % 8 == 7) Advance(milliseconds(250));
    Settle();
    if (manager_->offload() != nullptr) Check(true);
  }
  if (manager_->offload() != nullptr) Wrong("the daemon did not come to its end");
  Tend();
  CheckIdle();
  if (!launcher_.processes().empty()) Wrong(fmt::format("{} processes are left", launcher_.processes().size()));
  for (const std::unique_ptr<Client>& client : clients_) client->Close();
  Tend();
}

std::string World::Run(int steps) {
  Start();
  for (step_ = 0; step_ < steps && violation_.empty(); ++step_) {
    Step();
    // Not always to the end, so that the next thing happens in the middle of this one.
    const bool settle = rng_.Percent(50);
    if (settle) {
      Settle();
    } else {
      Turns(static_cast<int>(rng_.Below(3)));
    }
    Check(settle);
  }
  if (violation_.empty()) Finish();
  return violation_;
}

}  // namespace bulkhead::sim
