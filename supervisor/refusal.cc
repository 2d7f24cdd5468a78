#include "supervisor/refusal.h"

#include <fmt/format.h>

#include <chrono>

namespace bulkhead::supervisor {
namespace {

// Headers are read, and sequences end, within seconds; nothing better is known of a queue.
constexpr uint64_t kRetryMs = 1000;

}  // namespace

OffloadError ErrorOf(const admission::Refusal& refusal) {
  OffloadError error = OffloadError::Of(refusal.reason, refusal.message);
  error.hint = refusal.hint;
  error.retry_after_ms = static_cast<uint64_t>(refusal.retry_after / std::chrono::milliseconds(1));
  if (refusal.reason != Reason::kQueueFull) return error;
  // What was asked for is one place more than there are.
  error.length = refusal.asked - 1;
  error.limit = refusal.limit;
  return error;
}

OffloadError QueueFull(std::string_view what, size_t length, size_t limit) {
  OffloadError error =
      OffloadError::Of(Reason::kQueueFull, fmt::format("{}: {} requests wait, the limit is {}", what, length, limit));
  error.hint = "bulkhead ps --requests";
  error.retry_after_ms = kRetryMs;
  error.length = length;
  error.limit = limit;
  return error;
}

}  // namespace bulkhead::supervisor
