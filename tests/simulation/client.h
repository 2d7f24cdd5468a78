// A simulated client: one connection, what it has asked, and what it may hear. It knows the one right sequence of each
// of its generations (worker.h's Oracle) and holds every frame against it. Single-threaded.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/fd.h"
#include "bulkhead/v1/client.pb.h"
#include "ipc/frame.h"
#include "tests/simulation/worker.h"

namespace bulkhead::sim {

class Client {
 public:
  struct Request {
    v1::ClientFrame asked;
    std::optional<Oracle> oracle;  // of a generation
    std::string inference_id;
    uint64_t next_index = 0;
    uint32_t resumed = 0;          // worker deaths that it has heard of
    bool cancelled = false;        // somebody asked for its end
    std::set<pid_t> must_be_gone;  // where the answer says that something ended, these have
  };
  struct Answer {
    Request request;
    v1::ServerFrame frame;
  };

  Client(UniqueFd fd, uid_t uid) : uid_(uid), fd_(std::move(fd)), reader_(ipc::kHardMaxFrame) {}

  // Gives the frame an id, sends it, and expects one terminal for it. 0 where it is no request.
  uint64_t Ask(v1::ClientFrame frame, std::set<pid_t> must_be_gone = {});
  // A generation whose sequence is known; attached to from `from_index` on.
  uint64_t Listen(v1::ClientFrame frame, const Oracle& oracle, uint64_t from_index);
  void Hello();
  void SendRaw(const std::string& bytes) { outgoing_ += bytes; }
  // Moves bytes both ways; answers go to `answers`. Does not read while it is stalled.
  void Turn();
  void Close();

  [[nodiscard]] bool open() const { return fd_.valid(); }
  [[nodiscard]] uid_t uid() const { return uid_; }
  [[nodiscard]] std::map<uint64_t, Request>& waiting() { return waiting_; }
  [[nodiscard]] const std::vector<std::string>& violations() const { return violations_; }
  // Of everything heard, so that two runs can be compared.
  [[nodiscard]] uint64_t digest() const { return digest_; }
  std::vector<Answer> TakeAnswers() { return std::exchange(answers_, {}); }

  bool stalled = false;
  bool hostile = false;  // sent what is no frame: the daemon may end the connection with an error

 private:
  void Take(const v1::ServerFrame& frame);
  void OnResumed(Request& request, const v1::Resumed& resumed);
  void OnDelta(Request& request, const v1::Delta& delta);
  void OnDone(const Request& request, const v1::Done& done);
  void Wrong(const std::string& what) { violations_.push_back(what); }

  uid_t uid_;
  UniqueFd fd_;
  ipc::FrameReader reader_;
  std::string outgoing_;
  uint64_t last_id_ = 0;
  std::map<uint64_t, Request> waiting_;
  std::vector<Answer> answers_;
  std::vector<std::string> violations_;
  uint64_t digest_ = 0;
};

}  // namespace bulkhead::sim
