// A whole daemon (daemon::Manager with everything below it) in a world that is made up: the clock moves when the test
// says so, workers are programs of the test's, clients are socket pairs whose reads and writes may be cut short or
// fail, pool threads do not exist (their work is done when a step says so), and memory is what the seed says. One
// number decides everything that happens, so a seed that fails fails again.
//
// Real are the epoll loop, the sockets and pipes inside this process, and the files of the state directory.
#pragma once

#include <uv.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "daemon/manager.h"
#include "tests/sim/rng.h"
#include "tests/simulation/client.h"
#include "tests/simulation/processes.h"
#include "tests/simulation/worker.h"

namespace bulkhead::sim {

inline constexpr uint64_t kGiB = uint64_t{1} << 30;
inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr int kModels = 3;
inline constexpr uid_t kUids[] = {1000, 1001, 0};

// A clock whose time of day may be set, forwards and backwards.
class SimulatedClock final : public Clock {
 public:
  [[nodiscard]] Duration Monotonic() const override { return base_.Monotonic(); }
  [[nodiscard]] Duration Boottime() const override { return base_.Boottime(); }
  [[nodiscard]] Duration Wall() const override { return base_.Wall() + set_by_; }
  void Advance(Duration by) { base_.Advance(by); }
  void Suspend(Duration by) { base_.Suspend(by); }
  void SetWallBy(Duration by) { set_by_ += by; }

 private:
  FakeClock base_;
  Duration set_by_{0};
};

class World {
 public:
  struct Counts {
    std::map<std::string, uint64_t> of;  // by name of step or fault, for the coverage that is printed
    uint64_t terminals = 0;
    uint64_t whole = 0;  // generations that ended with their whole sequence
  };

  // `directory` exists, with models/ in it; everything else in it is this run's.
  World(uint64_t seed, std::string directory, Counts& counts, bool trace);
  ~World();

  // Runs it to its end; the first violation, or nothing.
  std::string Run(int steps);
  [[nodiscard]] uint64_t digest() const { return digest_; }

 private:
  struct Known {  // a generation whose id somebody may use
    uid_t uid = 0;
    std::string prompt;
    uint64_t seed = 0;
    uint32_t max_tokens = 0;
    bool lingers = false;
  };
  struct Keyed {  // the last request of a user with an idempotency_key
    v1::ClientFrame frame;
    uint64_t count = 0;
  };

  // world.cc
  void Start();
  void KillDaemon();
  void Settle();
  void Turns(int count);
  void Advance(Duration by);
  void Tend();
  void TakeAnswers(Client& client);
  void Check(bool settled);
  void Wrong(const std::string& what);
  bool Quiet();
  void CheckQueues();
  void CheckIdle();
  void Finish();
  // For the words of a violation.
  [[nodiscard]] std::string WhatIs() const;
  [[nodiscard]] std::set<pid_t> PidsOf(const std::string& model) const;

  // steps.cc
  void Step();
  void ClientStep();
  void Generate(Client& client);
  void Verb(Client& client);
  void WorkerStep();
  void WorkerFault();
  void SystemFault();
  void ExitRacesRelease();
  void Restart();
  void HealEverything();
  Client& Connect();
  Worker* SomeWorker(bool alive_only);
  [[nodiscard]] std::string SomeModel() { return "m" + std::to_string(rng_.Below(kModels)); }
  void Did(const char* what);

  Rng rng_;
  std::string directory_;
  Counts& counts_;
  bool trace_;
  uint64_t digest_ = 0;
  int step_ = 0;
  std::string violation_;

  uv_loop_t loop_ = {};
  SimulatedClock clock_;
  Launcher launcher_;
  Memory memory_;
  std::unique_ptr<daemon::Manager> manager_;
  std::map<pid_t, std::unique_ptr<Worker>> workers_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::map<std::string, Known> generations_;  // by inference id
  std::map<uid_t, Keyed> keyed_;
  std::map<std::string, pid_t> allocations_;  // every id ever seen
  std::string corrupted_;                     // state file that the next start has to set aside
  int spawn_failures_ = 0;                    // of the next launches
  bool late_signals_ = false;
  bool garbled_ = false;  // some worker or system call misbehaved: protocol errors are to be expected
  bool policy_changed_ = false;
};

}  // namespace bulkhead::sim
