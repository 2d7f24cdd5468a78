#include "ipc/frame.h"

#include <fmt/format.h>
#include <google/protobuf/message_lite.h>

#include <algorithm>
#include <cstring>

namespace bulkhead::ipc {
namespace {

// A buffer that has served one large frame is given back rather than kept for the life of the connection.
constexpr size_t kKeepBuffer = 64 << 10;

void PutLength(char* out, uint32_t length) {
  for (size_t i = 0; i < kFrameHeaderBytes; ++i) out[i] = static_cast<char>(length >> (8 * i));
}

}  // namespace

absl::StatusOr<std::optional<std::string_view>> FrameReader::Next(std::string_view* input) {
  if (!failure_.ok()) return failure_;
  if (buffer_handed_out_) FinishFrame();
  if (header_bytes_ < kFrameHeaderBytes) {
    if (!TakeHeader(input)) return std::nullopt;
    failure_ = CheckLength();
    if (!failure_.ok()) return failure_;
  }
  if (buffer_.empty() && input->size() >= length_) {
    const std::string_view payload = input->substr(0, length_);
    input->remove_prefix(length_);
    header_bytes_ = 0;
    return payload;
  }
  const size_t take = std::min<size_t>(length_ - buffer_.size(), input->size());
  buffer_.append(input->substr(0, take));
  input->remove_prefix(take);
  if (buffer_.size() < length_) return std::nullopt;
  header_bytes_ = 0;
  buffer_handed_out_ = true;
  return std::string_view(buffer_);
}

bool FrameReader::TakeHeader(std::string_view* input) {
  if (header_bytes_ == 0 && !input->empty()) ++frames_started_;
  const size_t take = std::min(kFrameHeaderBytes - header_bytes_, input->size());
  if (take > 0) std::memcpy(header_ + header_bytes_, input->data(), take);
  header_bytes_ += take;
  input->remove_prefix(take);
  if (header_bytes_ < kFrameHeaderBytes) return false;
  length_ = 0;
  for (size_t i = 0; i < kFrameHeaderBytes; ++i) length_ |= static_cast<uint32_t>(header_[i]) << (8 * i);
  return true;
}

absl::Status FrameReader::CheckLength() {
  if (length_ == 0) return Error(Reason::kProtocolError, "frame: its length is 0");
  if (length_ > max_frame_bytes_) {
    return Error(Reason::kFrameTooLarge, fmt::format("frame: {} bytes, limit {}", length_, max_frame_bytes_));
  }
  return absl::OkStatus();
}

void FrameReader::FinishFrame() {
  buffer_handed_out_ = false;
  buffer_.clear();
  if (buffer_.capacity() > kKeepBuffer) std::string().swap(buffer_);
}

absl::StatusOr<std::string> EncodeFrame(const google::protobuf::MessageLite& message, uint32_t max_frame_bytes) {
  const size_t size = message.ByteSizeLong();
  if (size > max_frame_bytes) {
    return Error(Reason::kFrameTooLarge, fmt::format("frame: {} bytes, limit {}", size, max_frame_bytes));
  }
  if (size == 0) return Error(Reason::kInternal, "frame: an empty message has no kind and is never sent");
  std::string frame(kFrameHeaderBytes + size, '\0');
  PutLength(frame.data(), static_cast<uint32_t>(size));
  if (!message.SerializeToArray(frame.data() + kFrameHeaderBytes, static_cast<int>(size))) {
    return Error(Reason::kInternal, "frame: the message cannot be serialised");
  }
  return frame;
}

std::string EncodePayload(std::string_view payload) {
  std::string frame(kFrameHeaderBytes, '\0');
  PutLength(frame.data(), static_cast<uint32_t>(payload.size()));
  frame.append(payload);
  return frame;
}

}  // namespace bulkhead::ipc
