#include "client/blocking_client.h"

#include <uv.h>

#include <utility>

#include "base/status.h"
#include "bulkhead/v1/client.pb.h"

namespace bulkhead::client {

struct BlockingClient::State {
  State() { uv_loop_init(&loop); }
  ~State() {
    connection.reset();
    // Handles the caller left behind would make the loop's close fail and leak; they are the caller's mistake to see.
    uv_walk(
        &loop,
        [](uv_handle_t* handle, void*) {
          if (!uv_is_closing(handle)) uv_close(handle, nullptr);
        },
        nullptr);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
  }

  uv_loop_t loop;
  std::unique_ptr<Connection> connection;
};

BlockingClient::BlockingClient() : state_(std::make_unique<State>()) {}
BlockingClient::~BlockingClient() = default;

absl::StatusOr<std::unique_ptr<BlockingClient>> BlockingClient::Connect(const std::string& path) {
  auto client = std::unique_ptr<BlockingClient>(new BlockingClient());
  ASSIGN_OR_RETURN(client->state_->connection, Connection::Open(&client->state_->loop, path));
  return client;
}

v1::ServerFrame BlockingClient::Call(v1::ClientFrame frame, UniqueFd descriptor, const FrameSink& on_event,
                                     const std::function<void(uint64_t)>& on_sent) {
  v1::ServerFrame terminal;
  bool done = false;
  const uint64_t id =
      state_->connection->Send(std::move(frame), std::move(descriptor), [&](const v1::ServerFrame& received) {
        if (IsTerminal(received)) {
          terminal = received;
          done = true;
        } else if (on_event) {
          on_event(received);
        }
      });
  if (on_sent) on_sent(id);
  while (!done) uv_run(&state_->loop, UV_RUN_ONCE);
  return terminal;
}

uv_loop_s* BlockingClient::loop() { return &state_->loop; }
Connection& BlockingClient::connection() { return *state_->connection; }

}  // namespace bulkhead::client
