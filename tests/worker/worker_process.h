// Plays the daemon to one real worker process over a socketpair. Every wait is bounded; the destructor kills and reaps.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "bulkhead/v1/worker.pb.h"
#include "ipc/blocking_frame_socket.h"

namespace bulkhead::worker {

// How the process ended: by exit or by signal.
struct Exit {
  int code = -1;
  int signal = 0;
};

class WorkerProcess {
 public:
  struct Options {
    std::string program;  // a name in the build's bin folder
    std::vector<std::string> arguments;
    int model_fd = -1;
    uint64_t data_limit_bytes = 0;  // RLIMIT_DATA; 0 = none
  };
  explicit WorkerProcess(const Options& options);
  ~WorkerProcess();

  bool Send(const v1::DaemonFrame& frame);
  // The next frame, nullopt at the end or after `timeout`.
  std::optional<v1::WorkerFrame> Receive(Duration timeout);
  // Reads until a frame of this kind comes; others are kept in `seen`.
  std::optional<v1::WorkerFrame> Await(v1::WorkerFrame::KindCase kind, Duration timeout = std::chrono::seconds(60));
  // Hello, then Configure (4 sequences of 512 tokens, 2 threads).
  bool Configure(const std::string& hook = "");
  bool ConfigureAndAwaitReady(const std::string& hook = "");

  void CloseControl() { control_.reset(); }
  std::optional<Exit> Wait(Duration timeout = std::chrono::seconds(30));
  // All of it, after Wait.
  std::string Stderr();
  [[nodiscard]] pid_t pid() const { return pid_; }

  std::vector<v1::WorkerFrame> seen;

 private:
  pid_t pid_ = -1;
  UniqueFd pidfd_;
  UniqueFd stderr_;
  std::unique_ptr<ipc::BlockingFrameSocket> control_;
  std::optional<Exit> exit_;
};

// A small random model, made once per test program; deleted already, so only the descriptor holds it.
int SmallModel();

// Path of a program beside the test's own.
std::string BinPath(const std::string& name);

v1::DaemonFrame GenerateFrame(uint64_t handle, const std::vector<int32_t>& ids, uint32_t max_tokens);

}  // namespace bulkhead::worker
