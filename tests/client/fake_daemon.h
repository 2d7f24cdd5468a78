// A daemon made of one function, on a socket in a temporary directory: answers every request by a script. Its thread
// accepts connections one after the other until destroyed.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "bulkhead/v1/client.pb.h"

namespace bulkhead {

class FakeDaemon {
 public:
  struct Answer {
    std::vector<v1::ServerFrame> frames;  // request_id is filled in where it is 0
    std::string raw;                      // bytes to follow them, as they are
    bool hang_up = false;                 // close the connection behind them
  };
  // `descriptor` is what travelled with the frame, -1 if nothing did.
  using Script = std::function<Answer(const v1::ClientFrame& frame, int descriptor)>;

  explicit FakeDaemon(Script script);
  ~FakeDaemon();

  [[nodiscard]] const std::string& socket() const { return socket_; }
  // Requests so far, Hello left out.
  [[nodiscard]] std::vector<v1::ClientFrame> received();

 private:
  void Serve();
  void ServeOne(UniqueFd connection);

  Script script_;
  std::string directory_;
  std::string socket_;
  UniqueFd listener_;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;
  std::vector<v1::ClientFrame> received_;
  std::thread thread_;
};

// An Answer of one frame.
FakeDaemon::Answer Reply(v1::ServerFrame frame);
FakeDaemon::Answer ReplyError(v1::Reason reason, const std::string& message);

// started, one delta per text (ids 10, 11, ...), and done{STOP} unless `done` is false.
FakeDaemon::Answer Story(const std::vector<std::string>& texts, bool done = true);

}  // namespace bulkhead
