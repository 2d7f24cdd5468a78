// Any bytes as the records an earlier daemon left; and records of this daemon with any bytes changed. What it looks for
// beside crashes: a request without an id, deltas with a gap, a request twice, and more taken than the bytes hold.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <string_view>

#include "base/sys.h"
#include "daemon/records.h"

namespace {

using bulkhead::daemon::ReadRecords;
using bulkhead::daemon::RecordedRequest;
using bulkhead::daemon::RecordStore;

constexpr size_t kHalf = 16384;
constexpr size_t kHead = 4096;

void Check(std::string_view bytes) {
  const auto state = ReadRecords(bytes);
  if (!state.ok()) return;
  if (state->used > bytes.size()) abort();
  std::set<uint64_t> serials;
  for (const RecordedRequest& request : state->requests) {
    if (request.serial == 0 || request.serial > state->last_serial || !serials.insert(request.serial).second) abort();
    if (request.inference_id.empty()) abort();
    uint64_t next = 0;
    for (const auto& delta : request.deltas) {
      if (delta.index() != next) abort();
      next += static_cast<uint64_t>(delta.tokens_size());
    }
  }
}

// What a daemon writes for the moves: one byte says what, the next ones for which request.
std::string Written(const uint8_t* moves, size_t count) {
  auto store = RecordStore::Create(kHalf);
  if (!store.ok()) abort();
  uint64_t last = 0;
  uint64_t index = 0;
  for (size_t i = 0; i < count; ++i) {
    bulkhead::v1::ServerFrame frame;
    switch (moves[i] % 4) {
      case 0: {
        bulkhead::v1::GenerateRequest request;
        request.mutable_model()->set_name("m");
        request.set_prompt(std::string(moves[i], 'p'));
        last = (*store)->Begin("inf-1", 7, {}, request);
        index = 0;
        break;
      }
      case 1:
        frame.mutable_started()->set_inference_id("inf-1");
        (*store)->Append(last, frame);
        break;
      case 2:
        frame.mutable_delta()->set_index(index++);
        frame.mutable_delta()->add_tokens()->set_id(moves[i]);
        (*store)->Append(last, frame);
        break;
      default:
        (*store)->Forget(last);
        break;
    }
  }
  std::string bytes(kHead + 2 * kHalf, '\0');
  if (bulkhead::sys::Pread((*store)->fd(), bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    abort();
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t moves = std::min<size_t>(data[0], size - 1);
  if (data[0] == 0) {
    Check({reinterpret_cast<const char*>(data + 1), size - 1});
    return 0;
  }
  std::string bytes = Written(data + 1, moves);
  Check(bytes);
  // Triples: where, and what it becomes.
  for (size_t i = 1 + moves; i + 2 < size; i += 3) {
    bytes[(data[i] | size_t{data[i + 1]} << 8) % bytes.size()] = static_cast<char>(data[i + 2]);
  }
  Check(bytes);
  return 0;
}
