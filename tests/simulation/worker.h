// The program of a simulated worker: the worker's side of the protocol, one small action at a time, with an engine that
// is a hash. The sequence of a request is a function of its prompt and seed alone, so that whoever knows these knows
// what the client has to get, whatever happened in between.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bulkhead/v1/worker.pb.h"
#include "ipc/frame.h"
#include "tests/simulation/processes.h"

namespace bulkhead::sim {

// The one sequence of a request.
struct Oracle {
  Oracle(std::string_view prompt, uint64_t seed, uint32_t max_tokens);

  [[nodiscard]] int32_t TokenAt(size_t index) const;
  static std::string TextOf(int32_t token);

  size_t length;
  v1::FinishReason finish;

 private:
  uint64_t key_;
};

class Worker {
 public:
  explicit Worker(Process& process) : process_(process), reader_(ipc::kHardMaxFrame) {}

  // One action: says hello, reads what has come, loads a bit, produces a token for every sequence. False where there
  // was nothing to do. Inspection: writes the manifest and exits.
  bool Act();
  void Heartbeat();
  // Bytes that are no frame.
  void Garble(std::string_view bytes) { Write(std::string(bytes)); }
  void FailToLoad(v1::Reason reason);
  void SendFrame(const v1::WorkerFrame& frame);

  [[nodiscard]] bool ready() const { return phase_ == Phase::kReady; }
  [[nodiscard]] bool loading() const { return phase_ == Phase::kLoading; }
  [[nodiscard]] size_t sequences() const { return sequences_.size(); }
  [[nodiscard]] pid_t pid() const { return process_.pid; }
  // What the daemon sent that it must not send.
  [[nodiscard]] const std::vector<std::string>& violations() const { return violations_; }

  bool silent = false;  // computes nothing and says nothing, but lives

 private:
  enum class Phase : uint8_t { kStarted, kHello, kLoading, kReady };
  struct Sequence {
    Oracle oracle;
    size_t produced = 0;
    bool paused = false;
  };

  bool Inspect();
  bool Read();
  void Handle(const v1::DaemonFrame& frame);
  void Begin(const v1::WorkerGenerate& generate);
  bool Produce();
  void Write(std::string bytes);
  void Flush();

  Process& process_;
  ipc::FrameReader reader_;
  Phase phase_ = Phase::kStarted;
  v1::Configure configure_;
  uint32_t loaded_ = 0;
  uint64_t progress_ = 0;
  std::map<uint64_t, Sequence> sequences_;
  std::string outgoing_;
  std::vector<std::string> violations_;
};

}  // namespace bulkhead::sim
