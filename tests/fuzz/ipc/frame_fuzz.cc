// A peer's bytes, in pieces of a size the input chooses, through the frame reader and into each of the four kinds of
// frame. What it looks for beside crashes: a reader that holds more than it was given, and payloads that depend on how
// the bytes were split.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "bulkhead/v1/client.pb.h"
#include "bulkhead/v1/worker.pb.h"
#include "ipc/frame.h"
#include "ipc/message.h"

namespace bulkhead::ipc {
namespace {

struct Outcome {
  std::vector<std::string> payloads;
  Reason reason = Reason::kUnspecified;
  bool operator==(const Outcome&) const = default;
};

Outcome Read(std::string_view stream, size_t piece_bytes) {
  FrameReader reader(kDefaultMaxFrame);
  Outcome outcome;
  for (size_t at = 0; at < stream.size(); at += piece_bytes) {
    std::string_view piece = stream.substr(at, piece_bytes);
    while (true) {
      const auto payload = reader.Next(&piece);
      if (!payload.ok()) {
        outcome.reason = ReasonOf(payload.status());
        return outcome;
      }
      if (!payload->has_value()) break;
      outcome.payloads.emplace_back(**payload);
    }
    if (reader.buffered_bytes() > 2 * stream.size() + 64) abort();
  }
  return outcome;
}

template <typename M>
void Parse(std::string_view payload) {
  const auto message = ParseMessage<M>(payload);
  if (message.ok()) (void)EncodeFrame(**message);
}

}  // namespace
}  // namespace bulkhead::ipc

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace bulkhead::ipc;
  if (size == 0) return 0;
  const std::string_view stream(reinterpret_cast<const char*>(data + 1), size - 1);
  const Outcome outcome = Read(stream, 1 + data[0]);
  if (outcome != Read(stream, stream.size() + 1)) abort();
  for (const std::string& payload : outcome.payloads) {
    Parse<bulkhead::v1::ClientFrame>(payload);
    Parse<bulkhead::v1::ServerFrame>(payload);
    Parse<bulkhead::v1::DaemonFrame>(payload);
    Parse<bulkhead::v1::WorkerFrame>(payload);
  }
  return 0;
}
