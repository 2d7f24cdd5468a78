// What can happen in the world: one thing a step, chosen by the seed.
#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/simulation/faults.h"
#include "tests/simulation/world.h"

namespace bulkhead::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct CallError {
  const char* call;
  int error;
};
// Of sockets, pipes and files: survived, or the end of a connection or a request. Not of fcntl, which the launcher
// answers by waiting in real time; tests/faults/errno_test.cc has it.
constexpr CallError kTransferErrors[] = {
    {"RecvMsg", EINTR},  {"RecvMsg", EAGAIN},    {"RecvMsg", ENOMEM},     {"RecvMsg", ECONNRESET}, {"SendMsg", EINTR},
    {"SendMsg", EAGAIN}, {"SendMsg", ENOBUFS},   {"SendMsg", ECONNRESET}, {"Read", EINTR},         {"Read", EIO},
    {"Fstat", EIO},      {"Shutdown", ENOTCONN}, {"Close", EINTR},        {"Open", ENOMEM},        {"Open", EMFILE},
    {"OpenAt", EMFILE},  {"Fstat", ENOMEM},      {"EventFd", ENOMEM},     {"Pipe", EMFILE},
};
// Of the state directory.
constexpr CallError kDiskErrors[] = {
    {"Write", ENOSPC}, {"Write", EINTR},   {"Write", EIO},    {"Fsync", ENOSPC},
    {"Fsync", EIO},    {"Rename", ENOSPC}, {"Unlink", EROFS}, {"Open", ENOSPC},
};

}  // namespace

void World::Did(const char* what) {
  ++counts_.of[what];
  digest_ = digest_ * 31 + what[0] + what[1];
  if (trace_) {
    fmt::print("{:4d} {:8d} ms {} ({} clients, {} workers)\n", step_, clock_.Monotonic() / milliseconds(1), what,
               clients_.size(), workers_.size());
  }
}

void World::Step() {
  if (clients_.empty() || (clients_.size() < 4 && rng_.Percent(10))) Connect();
  const uint64_t dice = rng_.Below(100);
  if (dice < 28) return ClientStep();
  if (dice < 72) return WorkerStep();
  if (dice < 82) {
    Did("time passes");
    static constexpr int kMs[] = {1, 20, 200, 1500, 7000, 40000};
    return Advance(milliseconds(kMs[rng_.Below(rng_.Percent(30) ? 6 : 4)]));
  }
  if (dice < 91) return WorkerFault();
  if (dice < 99) return SystemFault();
  Restart();
}

Client& World::Connect() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) std::abort();
  const uid_t uid = kUids[rng_.Below(3)];
  manager_->Serve(UniqueFd(fds[0]), {42, uid, uid, {}});
  clients_.push_back(std::make_unique<Client>(UniqueFd(fds[1]), uid));
  clients_.back()->Hello();
  Did("connect");
  return *clients_.back();
}

void World::ClientStep() {
  Client& client = *clients_[rng_.Below(clients_.size())];
  const uint64_t dice = rng_.Below(100);
  if (dice < 45) return Generate(client);
  if (dice < 85) return Verb(client);
  if (dice < 92) {
    client.stalled = !client.stalled;
    return Did(client.stalled ? "client stops reading" : "client reads again");
  }
  if (dice < 98) {
    Did("client leaves");
    return client.Close();
  }
  Did("client talks rubbish");
  client.hostile = true;
  client.SendRaw(std::string("\x05\0\0\0rubbish", 11));
}

void World::Generate(Client& client) {
  if (client.waiting().size() >= 4) return;
  v1::ClientFrame frame;
  v1::GenerateRequest& request = *frame.mutable_generate();
  request.mutable_model()->set_name(SomeModel());
  request.set_prompt(fmt::format("prompt {}", rng_.Below(1000)));
  request.mutable_sampling()->set_seed(rng_.Below(1000));
  if (rng_.Percent(30)) request.mutable_limits()->set_max_tokens(static_cast<uint32_t>(rng_.Between(1, 20)));
  if (rng_.Percent(20)) request.mutable_limits()->set_deadline_ms(rng_.Between(1, 5000));
  if (rng_.Percent(20)) request.mutable_limits()->set_queue_ms(rng_.Between(1, 5000));
  if (rng_.Percent(30)) request.set_linger_ms(rng_.Between(1, 20000));
  request.set_priority(static_cast<v1::Priority>(rng_.Below(3)));
  if (rng_.Percent(30)) request.set_on_worker_death(v1::ON_WORKER_DEATH_FAIL);
  // Repeated under its key it is one generation.
  if (rng_.Percent(15)) {
    Keyed& keyed = keyed_[client.uid()];
    if (keyed.count > 0 && rng_.Percent(60)) {
      Did("generate again under its key");
      frame = keyed.frame;
    } else {
      request.set_idempotency_key(fmt::format("key {}", ++keyed.count));
      keyed.frame = frame;
    }
  }
  const v1::GenerateRequest& asked = frame.generate();
  const Oracle oracle(asked.prompt(), asked.sampling().seed(), asked.limits().max_tokens());
  const bool shared = !asked.idempotency_key().empty();
  const bool has_deadline = asked.limits().deadline_ms() > 0;
  const uint64_t id = client.Listen(std::move(frame), oracle, 0);
  // A deadline that passes after tokens came is a done{CANCELLED}, too.
  // Whoever shares it may have cancelled it.
  client.waiting().at(id).cancelled = has_deadline || shared;
  Did("generate");
}

void World::Verb(Client& client) {
  v1::ClientFrame frame;
  std::set<pid_t> gone;
  const char* what = "ps";
  std::string inference;
  if (!generations_.empty()) inference = std::next(generations_.begin(), rng_.Below(generations_.size()))->first;
  const Known known = inference.empty() ? Known() : generations_.at(inference);
  const auto ends = [&] {
    for (const std::unique_ptr<Client>& other : clients_) {
      for (auto& [id, request] : other->waiting()) {
        if (request.inference_id == inference || request.asked.attach().inference_id() == inference) {
          request.cancelled = true;
        }
      }
    }
  };
  switch (rng_.Below(12)) {
    case 0:
      if (client.waiting().empty()) return;
      what = "cancel";
      {
        auto& [id, request] = *client.waiting().begin();
        request.cancelled = true;
        frame.mutable_cancel()->set_target_request_id(id);
        inference = request.inference_id;
        if (!inference.empty()) ends();
      }
      break;
    case 1:
      if (inference.empty()) return;
      what = "cancel by id";
      ends();
      frame.mutable_cancel()->set_inference_id(inference);
      break;
    case 2: {
      if (inference.empty()) return;
      what = "terminate";
      ends();
      frame.mutable_terminate()->set_inference_id(inference);
      for (const supervisor::RequestInfo& info : manager_->offload()->Requests()) {
        if (info.inference_id != inference || (info.state != "PREFILL" && info.state != "DECODE")) continue;
        for (const supervisor::ResidentModel& resident : manager_->offload()->ResidentModels()) {
          if (resident.allocation_id == info.allocation_id && resident.pid > 0) gone.insert(resident.pid);
        }
      }
      break;
    }
    case 3:
    case 4: {
      what = "release";
      const std::string model = SomeModel();
      frame.mutable_release()->add_models(model);
      frame.mutable_release()->set_force(rng_.Percent(50));
      // By the time the frame is read others may be there; those that are there now go at any rate.
      gone = PidsOf(model);
      break;
    }
    case 5:
      what = "release idle";
      frame.mutable_release()->set_idle_for_ms(rng_.Below(2000));
      break;
    case 6:
      what = "load";
      frame.mutable_load()->mutable_model()->set_name(SomeModel());
      frame.mutable_load()->set_queue_ms(rng_.Between(1, 5000));
      break;
    case 7:
      if (inference.empty() || !known.lingers) return;
      what = "attach";
      {
        frame.mutable_attach()->set_inference_id(inference);
        const uint64_t id = client.Listen(std::move(frame), Oracle(known.prompt, known.seed, known.max_tokens), 0);
        // Whatever cancels it may have been asked by somebody who has left.
        client.waiting().at(id).cancelled = true;
      }
      return Did(what);
    case 8:
      if (client.waiting().empty()) return;
      what = "grant";
      {
        frame.mutable_grant()->set_target_request_id(client.waiting().begin()->first);
        frame.mutable_grant()->set_up_to_index(1000);
        client.SendRaw(*ipc::EncodeFrame(frame));
      }
      return Did(what);
    case 9:
      what = "tokenize";
      frame.mutable_tokenize()->mutable_model()->set_name(SomeModel());
      frame.mutable_tokenize()->set_text("text");
      break;
    case 10:
      what = "policy";
      policy_changed_ = true;
      (*frame.mutable_policy()->mutable_set())["budget.bytes"] = std::to_string(rng_.Between(0, 2) * kGiB);
      break;
    default:
      frame.mutable_ps()->set_requests(true);
      break;
  }
  client.Ask(std::move(frame), std::move(gone));
  Did(what);
}

Worker* World::SomeWorker(bool alive_only) {
  std::vector<Worker*> all;
  for (auto& [pid, worker] : workers_) {
    const Process* process = launcher_.Find(pid);
    if (process != nullptr && (!alive_only || process->alive())) all.push_back(worker.get());
  }
  return all.empty() ? nullptr : rng_.Pick(all);
}

void World::WorkerStep() {
  Worker* worker = SomeWorker(true);
  if (worker == nullptr) return;
  Process& process = *launcher_.Find(worker->pid());
  if (process.TakeSignals()) return Did("signal arrives");
  Did(process.inspects ? "inspector acts" : "worker acts");
  for (uint64_t i = rng_.Between(1, 6); i > 0 && worker->Act(); --i) {
  }
  if (rng_.Percent(20)) worker->Heartbeat();
}

void World::WorkerFault() {
  Worker* worker = SomeWorker(true);
  if (worker == nullptr) return;
  Process& process = *launcher_.Find(worker->pid());
  static constexpr int kSignals[] = {SIGKILL, SIGSEGV, SIGABRT, SIGSYS, SIGBUS, SIGILL};
  switch (rng_.Below(10)) {
    case 0:
    case 1:
      process.End({-1, kSignals[rng_.Below(6)]});
      return Did("worker crashes");
    case 2:
      process.End({static_cast<int>(rng_.Below(4)), 0});
      garbled_ = true;
      return Did("worker exits");
    case 3:
      process.stopped = !process.stopped;
      return Did(process.stopped ? "worker is stopped" : "worker is continued");
    case 4:
      worker->silent = !worker->silent;
      return Did(worker->silent ? "worker falls silent" : "worker speaks again");
    case 5:
      process.deaf = !process.deaf;
      return Did(process.deaf ? "worker sleeps uninterruptibly" : "worker can be interrupted");
    case 6:
      if (process.inspects || rng_.Percent(50)) return;
      garbled_ = true;
      worker->Garble(std::string_view("\x03\0\0\0abcxx", 9));
      return Did("worker talks rubbish");
    case 7:
      if (!worker->loading()) return;
      worker->FailToLoad(rng_.Percent(50) ? v1::REASON_WORKER_OOM : v1::REASON_MODEL_INVALID);
      return Did("load fails");
    case 8:
      return ExitRacesRelease();
    default:
      ++memory_.out_of_memory_kills;
      process.End({-1, SIGKILL});
      return Did("out of memory");
  }
}

// The frame is with the daemon when the process ends, and which of the two it sees first is open.
void World::ExitRacesRelease() {
  Worker* worker = SomeWorker(true);
  if (worker == nullptr) return;
  Process& process = *launcher_.Find(worker->pid());
  std::string model;
  for (const supervisor::ResidentModel& resident : manager_->offload()->ResidentModels()) {
    if (resident.pid == process.pid) model = resident.model;
  }
  if (model.empty()) return;
  Client& client = *clients_[rng_.Below(clients_.size())];
  v1::ClientFrame frame;
  frame.mutable_release()->add_models(model);
  frame.mutable_release()->set_force(rng_.Percent(50));
  client.Ask(std::move(frame), {process.pid});
  client.Turn();
  if (rng_.Percent(50)) Turns(1);
  process.End(rng_.Percent(50) ? supervisor::ProcessExit{-1, SIGSEGV} : supervisor::ProcessExit{0, 0});
  garbled_ = true;
  Did("an exit races a release");
}

void World::SystemFault() {
  switch (rng_.Below(10)) {
    case 0:
    case 1: {
      const CallError& fault = kTransferErrors[rng_.Below(std::size(kTransferErrors))];
      FailCalls(fault.call, fault.error, static_cast<int>(rng_.Between(1, 3)));
      garbled_ = true;  // a worker's socket that fails is a protocol error to the supervisor
      return Did("transfer fails");
    }
    case 2:
      CutTransfers(rng_.Percent(60) ? rng_.Between(1, 64) : 0, rng_.Next());
      return Did("transfers are cut");
    case 3: {
      const CallError& fault = kDiskErrors[rng_.Below(std::size(kDiskErrors))];
      FailCalls(fault.call, fault.error, static_cast<int>(rng_.Between(1, 4)));
      return Did("disk fails");
    }
    case 4:
      spawn_failures_ = static_cast<int>(rng_.Between(1, 2));
      return Did("spawns fail");
    case 5:
      late_signals_ = !late_signals_;
      return Did(late_signals_ ? "signals are late" : "signals are prompt");
    case 6:
      clock_.Suspend(seconds(rng_.Between(1, 3000)));
      manager_->RunDueTimers();
      return Did("the machine was suspended");
    case 7:
      memory_.machine.available = rng_.Percent(50)   ? std::optional<uint64_t>(rng_.Between(1, 12) * kGiB)
                                  : rng_.Percent(50) ? std::nullopt
                                                     : std::optional<uint64_t>(12 * kGiB);
      return Did("memory changes");
    case 8:
      clock_.SetWallBy(rng_.Percent(50) ? seconds(rng_.Between(1, 100000)) : -seconds(rng_.Between(1, 100000)));
      manager_->RunDueTimers();
      return Did("the time of day is set");
    default:
      DoOnePieceOfWork();
      return Did("disk is done");
  }
}

// The daemon is killed and comes back, perhaps over a state file that makes no sense.
void World::Restart() {
  KillDaemon();
  Did("the daemon is killed");
  ForgetFailures();
  clock_.Advance(seconds(rng_.Between(1, 20)));
  if (rng_.Percent(50)) {
    static constexpr const char* kFiles[] = {"boot", "peaks", "deaths"};
    corrupted_ = kFiles[rng_.Below(3)];
    std::filesystem::remove(directory_ + "/state/" + corrupted_ + ".corrupt");
    std::ofstream(directory_ + "/state/" + corrupted_) << "\xff\xff\xff\xff no such thing";
    Did("a state file is corrupt");
  }
  if (rng_.Percent(20)) FailCalls("Fsync", ENOSPC, 1);
  policy_changed_ = false;
  Start();
}

void World::HealEverything() {
  ForgetFailures();
  CutTransfers(0, 1);
  spawn_failures_ = 0;
  late_signals_ = false;
  memory_.machine.available = 12 * kGiB;
  for (auto& [pid, worker] : workers_) {
    worker->silent = false;
    Process* process = launcher_.Find(pid);
    if (process == nullptr) continue;
    process->deaf = process->stopped = false;
    process->TakeSignals();
  }
  for (const std::unique_ptr<Client>& client : clients_) {
    client->stalled = false;
    // What is held back by a grant goes on.
    for (const auto& [id, request] : client->waiting()) {
      if (!request.oracle.has_value()) continue;
      v1::ClientFrame frame;
      frame.mutable_grant()->set_target_request_id(id);
      frame.mutable_grant()->set_up_to_index(UINT64_MAX);
      client->SendRaw(*ipc::EncodeFrame(frame));
    }
  }
  Did("everything is well again");
}

}  // namespace bulkhead::sim
