// From a frame's payload to a message, without trusting it: its shape is counted on the wire before anything is built,
// and everything built stands in one arena that goes with it.
#pragma once

#include <google/protobuf/arena.h>

#include <memory>
#include <string_view>

#include "base/status.h"
#include "ipc/limits.h"

namespace google::protobuf {
class Descriptor;
class MessageLite;
}  // namespace google::protobuf

namespace bulkhead::ipc {

// Walks the wire form of a message of `type`. kProtocolError where it is malformed, nests deeper or holds more than
// `limits` allow; the message names the limit. Allocates nothing that grows with the input.
absl::Status CheckShape(const google::protobuf::Descriptor& type, std::string_view bytes,
                        const ShapeLimits& limits = {});

// A message together with the arena it lives in. Move-only; never null after ParseMessage said OK.
template <typename M>
class ArenaMessage {
 public:
  ArenaMessage() : arena_(std::make_unique<google::protobuf::Arena>()) {
    message_ = google::protobuf::Arena::CreateMessage<M>(arena_.get());
  }

  M& operator*() const { return *message_; }
  M* operator->() const { return message_; }
  [[nodiscard]] M* get() const { return message_; }

 private:
  std::unique_ptr<google::protobuf::Arena> arena_;
  M* message_ = nullptr;
};

// Parses what CheckShape has passed; kProtocolError otherwise.
absl::Status ParseInto(google::protobuf::MessageLite& message, std::string_view bytes);

template <typename M>
absl::StatusOr<ArenaMessage<M>> ParseMessage(std::string_view bytes, const ShapeLimits& limits = {}) {
  RETURN_IF_ERROR(CheckShape(*M::descriptor(), bytes, limits));
  ArenaMessage<M> message;
  RETURN_IF_ERROR(ParseInto(*message, bytes));
  return message;
}

}  // namespace bulkhead::ipc
