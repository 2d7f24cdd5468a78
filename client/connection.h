// libbulkhead, asynchronous: one connection to bulkheadd on a libuv loop, with any number of requests under way on it.
//
// Ownership: the loop is the caller's and must outlive the Connection; the Connection owns its socket and every
// descriptor handed to it. Thread rule: everything happens on the loop's thread; callbacks run from the loop, never
// inside a call. A callback may start or cancel requests and may close the connection.
//
// A daemon whose requests outlive it (capability "outlive") may be killed or restarted: the library connects again for
// up to 30 seconds and attaches each generation from the last token received; the sink sees one `resumed` and goes on.
// Not so with on_worker_death = FAIL or a passed file.
//
// Every request gets exactly one terminal frame. Where the daemon cannot send it any more - it closed the connection,
// or spoke rubbish - the library makes an `error` frame with CONNECTION_LOST (or PROTOCOL_ERROR) itself, so an end of
// file is never mistaken for a good end.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/fd.h"

struct uv_loop_s;

namespace bulkhead::v1 {
class ClientFrame;
class ErrorEvent;
class Hello;
class ServerFrame;
}  // namespace bulkhead::v1

namespace bulkhead::client {

// Called for each frame that answers one request, the terminal last.
using FrameSink = std::function<void(const v1::ServerFrame&)>;

class Connection {
 public:
  // Connects to the socket at `path` and says Hello. Errors found at once (no such socket, nobody listening, no right,
  // a path longer than a socket address holds) carry kDaemonUnreachable or kPermissionDenied; a listener whose queue is
  // full is asked again for up to ten seconds while requests already wait.
  static absl::StatusOr<std::unique_ptr<Connection>> Open(uv_loop_s* loop, const std::string& path);

  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  // Closes without answering what is still open.
  ~Connection();

  // Sends `frame` under a new request id, which it returns, with `descriptor` attached if that is valid. Never fails:
  // on a connection already lost the sink gets its terminal from the loop's next turn.
  uint64_t Send(v1::ClientFrame frame, UniqueFd descriptor, FrameSink sink);

  // Asks the daemon to end generation or load `request_id` gently; its terminal arrives through its own sink. Unknown
  // or finished ids are no error.
  void Cancel(uint64_t request_id);

  // The daemon's Hello once it has come, else nullptr.
  [[nodiscard]] const v1::Hello* server_hello() const;

  // Requests without a terminal yet.
  [[nodiscard]] size_t open_requests() const;

 private:
  class Impl;
  explicit Connection(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Whether `frame` ends its request.
[[nodiscard]] bool IsTerminal(const v1::ServerFrame& frame);

// The status an `error` event stands for, reason and message included.
[[nodiscard]] absl::Status StatusOf(const v1::ErrorEvent& event);

// The `error` event a status found by the client itself stands for: the same shape the daemon would have sent.
[[nodiscard]] v1::ErrorEvent ErrorEventOf(const absl::Status& status);

}  // namespace bulkhead::client
