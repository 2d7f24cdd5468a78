// The numbers of the frame layer, in bytes unless named otherwise.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bulkhead::ipc {

// Every frame begins with its payload's length, u32 little-endian.
inline constexpr size_t kFrameHeaderBytes = 4;

// Until a peer has said Hello, and for anything that carries no prompt.
inline constexpr uint32_t kMaxControlFrame = 64 << 10;
// What a request may be unless the configuration says otherwise; also the cap between daemon and worker.
inline constexpr uint32_t kDefaultMaxFrame = 16 << 20;
// No configuration goes beyond this.
inline constexpr uint32_t kHardMaxFrame = 64 << 20;
// From the daemon to a worker: the largest client's request and what the daemon adds to it, so that no client can make
// its own request the worker's end.
inline constexpr uint32_t kMaxDaemonFrame = kHardMaxFrame + kMaxControlFrame;

// A connection is congested from the first mark until its queue has fallen to the second.
inline constexpr size_t kOutputHighWater = 256 << 10;
inline constexpr size_t kOutputLowWater = 64 << 10;
// A peer that lets this much pile up is disconnected: sequences pause long before, so only unread replies get there.
inline constexpr size_t kDefaultMaxQueued = 96 << 20;

// One read from a socket.
inline constexpr size_t kReadBufferBytes = 256 << 10;

// What a frame's message tree may hold, counted before it is built: two bytes on the wire may become an object of
// sixty. Elements are messages, strings and unknown fields; numbers are the elements of repeated numeric fields.
struct ShapeLimits {
  uint32_t max_elements = 64 << 10;
  uint32_t max_numbers = 4 << 20;
  uint32_t max_depth = 16;
};
// Of a daemon's frame to its worker, likewise larger than any client's.
inline constexpr ShapeLimits kDaemonShape = {128 << 10, 24 << 20, 24};

}  // namespace bulkhead::ipc
