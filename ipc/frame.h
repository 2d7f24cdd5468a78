// Frames: u32 little-endian payload length, then the payload. Pure: no descriptors, no clock, no threads of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "ipc/limits.h"

namespace google::protobuf {
class MessageLite;
}

namespace bulkhead::ipc {

// Takes bytes in any pieces and gives whole payloads back. What it holds grows with the bytes received, never by a
// declared length. Not thread-safe.
class FrameReader {
 public:
  explicit FrameReader(uint32_t max_frame_bytes) : max_frame_bytes_(max_frame_bytes) {}

  // Consumes bytes from the front of `*input`. Returns the next whole payload, valid until the next call and no longer
  // than the input's bytes; or nullopt with the input used up. kProtocolError for an empty frame, kFrameTooLarge for a
  // longer one than allowed; after an error the reader says the same for ever.
  absl::StatusOr<std::optional<std::string_view>> Next(std::string_view* input);

  // Counts for frames whose header has not been read yet.
  void set_max_frame_bytes(uint32_t bytes) { max_frame_bytes_ = bytes; }

  // True inside a frame: the stream may not end here.
  [[nodiscard]] bool mid_frame() const { return header_bytes_ > 0; }
  // Bytes set aside for a frame that is not whole yet.
  [[nodiscard]] size_t buffered_bytes() const { return buffer_.capacity(); }
  // Frames whose first byte has been consumed so far.
  [[nodiscard]] uint64_t frames_started() const { return frames_started_; }

 private:
  // Reads header bytes; true once the length is known.
  bool TakeHeader(std::string_view* input);
  absl::Status CheckLength();
  void FinishFrame();

  uint32_t max_frame_bytes_;
  uint32_t length_ = 0;
  unsigned char header_[kFrameHeaderBytes] = {};
  size_t header_bytes_ = 0;
  bool buffer_handed_out_ = false;
  std::string buffer_;
  uint64_t frames_started_ = 0;
  absl::Status failure_;
};

// Header and serialised message in one string. kFrameTooLarge beyond `max_frame_bytes`.
absl::StatusOr<std::string> EncodeFrame(const google::protobuf::MessageLite& message,
                                        uint32_t max_frame_bytes = kHardMaxFrame);

// Header in front of bytes that already are a payload. `payload` is at most kHardMaxFrame long and not empty.
std::string EncodePayload(std::string_view payload);

}  // namespace bulkhead::ipc
