// Any frames as what clients say, to a whole daemon over simulated workers: three connections of two users, one of them
// an administrator. What it looks for beside crashes: an answer to nothing, a second terminal, anything after a
// terminal, a stop that does not come to its end, a process or a charge that is left.
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>

#include "bulkhead/v1/client.pb.h"
#include "daemon/log.h"
#include "daemon/manager.h"
#include "ipc/frame.h"
#include "tests/fuzz/script.h"
#include "tests/simulation/processes.h"
#include "tests/simulation/worker.h"

namespace bulkhead::fuzz {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A directory with one model in it, for the whole run.
struct ModelDirectory {
  ModelDirectory() {
    char name[] = "/tmp/client-frame-fuzz-XXXXXX";
    path = ::mkdtemp(name);
    std::ofstream(path + "/m.gguf") << "GGUF and no more";
  }
  ~ModelDirectory() { std::filesystem::remove_all(path); }
  std::string path;
};

class Client {
 public:
  explicit Client(UniqueFd fd) : fd_(std::move(fd)), reader_(ipc::kHardMaxFrame), asked_(ipc::kHardMaxFrame) {}

  void Send(std::string_view bytes) {
    Count(bytes);
    (void)::send(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  void SendPayload(std::string_view payload) {
    if (!payload.empty()) Send(ipc::EncodePayload(payload));
  }
  void Hello() {
    v1::ClientFrame frame;
    frame.mutable_hello()->set_protocol_min(1);
    frame.mutable_hello()->set_protocol_max(1);
    Send(*ipc::EncodeFrame(frame));
  }

  void Receive() {
    std::array<char, 65536> buffer;
    while (fd_.valid()) {
      const ssize_t got = ::recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (got <= 0) return;
      std::string_view bytes(buffer.data(), static_cast<size_t>(got));
      while (true) {
        const auto payload = reader_.Next(&bytes);
        if (!payload.ok()) abort();
        if (!payload->has_value()) break;
        v1::ServerFrame frame;
        if (!frame.ParseFromArray((*payload)->data(), static_cast<int>((*payload)->size()))) abort();
        Check(frame);
      }
    }
  }
  void Close() { fd_.Reset(); }

 private:
  // Which requests have been asked, whatever pieces the bytes came in.
  void Count(std::string_view bytes) {
    while (true) {
      const auto payload = asked_.Next(&bytes);
      if (!payload.ok() || !payload->has_value()) return;
      v1::ClientFrame frame;
      if (frame.ParseFromArray((*payload)->data(), static_cast<int>((*payload)->size()))) ++sent_[frame.request_id()];
    }
  }

  void Check(const v1::ServerFrame& frame) {
    const uint64_t id = frame.request_id();
    if (id == 0) return;
    if (answered_[id] >= sent_[id]) abort();
    switch (frame.kind_case()) {
      case v1::ServerFrame::kQueued:
      case v1::ServerFrame::kLoading:
      case v1::ServerFrame::kStarted:
      case v1::ServerFrame::kDelta:
      case v1::ServerFrame::kResumed:
      case v1::ServerFrame::kEvent:
        return;
      default:
        ++answered_[id];
    }
  }

  UniqueFd fd_;
  ipc::FrameReader reader_;
  ipc::FrameReader asked_;
  std::map<uint64_t, int> sent_;
  std::map<uint64_t, int> answered_;
};

class World {
 public:
  World() : memory_(launcher_) {
    static const ModelDirectory models;
    daemon::SetLogLevel("off");
    uv_loop_init(&loop_);
    memory_.machine = {uint64_t{64} << 30, uint64_t{48} << 30, std::nullopt};
    launcher_.launched_hook = [this](sim::Process& process) { workers_[process.pid] = nullptr; };
    daemon::Manager::Options options;
    options.loop = &loop_;
    options.clock = &clock_;
    options.launcher = &launcher_;
    options.memory = &memory_;
    options.sources.surroundings.environment["HOME"] = "/nonexistent";
    options.loaded = daemon::DefaultConfig(options.sources.surroundings);
    options.loaded.config.paths.models = {models.path};
    options.loaded.config.paths.state.clear();
    options.loaded.config.log.level = "off";
    options.loaded.config.model.context = 512;
    manager_ = *daemon::Manager::Create(std::move(options));
    for (const uid_t uid : {uid_t{1000}, uid_t{1001}, uid_t{0}}) Connect(uid);
  }
  ~World() {
    manager_.reset();
    uv_run(&loop_, UV_RUN_DEFAULT);
    if (uv_loop_close(&loop_) != 0) abort();
  }

  void Run(Script& script) {
    Turn();
    while (const auto move = script.Next()) {
      Client& client = *clients_[(move->control & 3) % clients_.size()];
      const int how = move->control >> 2 & 7;
      if (how == 0) client.Send(move->payload);
      if (how == 1) client.Close();
      if (how >= 2) client.SendPayload(move->payload);
      if (how >= 6) clock_.Advance(how == 6 ? milliseconds(50) : seconds(20));
      for (int i = move->control >> 5; i > 0; --i) Turn();
    }
    Stop();
  }

 private:
  void Connect(uid_t uid) {
    int fds[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) abort();
    manager_->Serve(UniqueFd(fds[0]), {42, uid, uid, {}});
    clients_.push_back(std::make_unique<Client>(UniqueFd(fds[1])));
    clients_.back()->Hello();
  }

  void Turn() {
    manager_->RunDueTimers();
    do {
      for (int i = 0; i < 4; ++i) uv_run(&loop_, UV_RUN_NOWAIT);
    } while (loop_.active_reqs.count > 0);
    for (auto& [pid, process] : launcher_.processes()) {
      std::unique_ptr<sim::Worker>& worker = workers_[pid];
      if (worker == nullptr) worker = std::make_unique<sim::Worker>(*process);
      worker->Act();
      if (!worker->violations().empty()) abort();
    }
    std::erase_if(workers_, [this](const auto& entry) { return launcher_.Find(entry.first) == nullptr; });
    for (const std::unique_ptr<Client>& client : clients_) client->Receive();
  }

  void Stop() {
    manager_->Stop();
    for (int i = 0; i < 60 && manager_->offload() != nullptr; ++i) {
      Turn();
      clock_.Advance(seconds(1));
    }
    if (manager_->offload() != nullptr || !launcher_.processes().empty() || !launcher_.violations().empty()) abort();
    for (const std::unique_ptr<Client>& client : clients_) {
      client->Receive();
      client->Close();
    }
  }

  uv_loop_t loop_ = {};
  FakeClock clock_;
  sim::Launcher launcher_;
  sim::Memory memory_;
  std::map<pid_t, std::unique_ptr<sim::Worker>> workers_;
  std::unique_ptr<daemon::Manager> manager_;
  std::vector<std::unique_ptr<Client>> clients_;
};

}  // namespace
}  // namespace bulkhead::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  bulkhead::fuzz::Script script(data, size);
  bulkhead::fuzz::World().Run(script);
  return 0;
}
