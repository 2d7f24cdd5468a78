// libbulkhead for programs without a loop: a Connection on a loop of its own that runs while a call waits.
// One thread at a time. `loop()` and `connection()` let a caller add timers or signals that act during a call.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>

#include "client/connection.h"

namespace bulkhead::client {

class BlockingClient {
 public:
  static absl::StatusOr<std::unique_ptr<BlockingClient>> Connect(const std::string& path);

  BlockingClient(const BlockingClient&) = delete;
  BlockingClient& operator=(const BlockingClient&) = delete;
  ~BlockingClient();

  // Sends one request and waits for its terminal, which it returns: a reply, `done`, or `error` (see StatusOf).
  // `on_event` gets the frames before it. `on_sent`, where given, learns the request id, by which it may be cancelled
  // meanwhile.
  v1::ServerFrame Call(v1::ClientFrame frame, UniqueFd descriptor = {}, const FrameSink& on_event = {},
                       const std::function<void(uint64_t)>& on_sent = {});

  [[nodiscard]] uv_loop_s* loop();
  [[nodiscard]] Connection& connection();

 private:
  BlockingClient();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bulkhead::client
