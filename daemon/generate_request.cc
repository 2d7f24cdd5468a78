#include "daemon/generate_request.h"

#include <fmt/format.h>

#include <cmath>

#include "base/sys.h"

namespace bulkhead::daemon {
namespace {

constexpr uint64_t kMaxMilliseconds = 1000ull * 3600 * 24 * 365;

absl::Status BadRequest(std::string message) { return Error(Reason::kInvalidRequest, message); }

absl::Status CheckRange(std::string_view field, double value, double min, double max) {
  if (std::isfinite(value) && value >= min && value <= max) return absl::OkStatus();
  return BadRequest(fmt::format("sampling.{}: {} is outside {} to {}", field, value, min, max));
}

absl::Status CheckSampling(const v1::Sampling& sampling) {
  if (sampling.has_temperature()) RETURN_IF_ERROR(CheckRange("temperature", sampling.temperature(), 0, 100));
  if (sampling.has_top_k()) RETURN_IF_ERROR(CheckRange("top_k", sampling.top_k(), 0, INT32_MAX));
  if (sampling.has_top_p()) RETURN_IF_ERROR(CheckRange("top_p", sampling.top_p(), 0, 1));
  if (sampling.has_min_p()) RETURN_IF_ERROR(CheckRange("min_p", sampling.min_p(), 0, 1));
  if (sampling.has_repeat_penalty())
    RETURN_IF_ERROR(CheckRange("repeat_penalty", sampling.repeat_penalty(), 0.01, 100));
  if (sampling.has_repeat_last_n()) RETURN_IF_ERROR(CheckRange("repeat_last_n", sampling.repeat_last_n(), 0, 1 << 20));
  if (sampling.stop_size() > kMaxStopStrings) {
    return BadRequest(fmt::format("sampling.stop: {} strings, limit {}", sampling.stop_size(), kMaxStopStrings));
  }
  for (const std::string& stop : sampling.stop()) {
    if (stop.empty() || stop.size() > kMaxStopBytes) {
      return BadRequest(
          fmt::format("sampling.stop: a string of {} bytes, 1 to {} allowed", stop.size(), kMaxStopBytes));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckMessages(const v1::MessageList& list) {
  if (list.messages().empty()) return BadRequest("messages: empty");
  for (const v1::Message& message : list.messages()) {
    if (message.role() != "system" && message.role() != "user" && message.role() != "assistant") {
      return BadRequest("messages: a role other than system, user and assistant");
    }
  }
  return absl::OkStatus();
}

absl::Status TakeInput(const v1::GenerateRequest& request, supervisor::OffloadRequest& out) {
  switch (request.input_case()) {
    case v1::GenerateRequest::kPrompt:
      out.input = request.prompt();
      return absl::OkStatus();
    case v1::GenerateRequest::kMessages:
      RETURN_IF_ERROR(CheckMessages(request.messages()));
      out.input = std::vector<v1::Message>(request.messages().messages().begin(), request.messages().messages().end());
      return absl::OkStatus();
    case v1::GenerateRequest::kTokenIds:
      if (request.token_ids().ids().empty()) return BadRequest("token_ids: empty");
      for (const int32_t id : request.token_ids().ids()) {
        if (id < 0) return BadRequest(fmt::format("token_ids: {} is negative", id));
      }
      out.input = std::vector<int32_t>(request.token_ids().ids().begin(), request.token_ids().ids().end());
      return absl::OkStatus();
    default:
      return BadRequest("input: none of prompt, messages and token_ids");
  }
}

absl::Status TakeLimits(const v1::GenerateRequest& request, supervisor::OffloadRequest& out) {
  const v1::Limits& limits = request.limits();
  if (limits.deadline_ms() > kMaxMilliseconds || limits.queue_ms() > kMaxMilliseconds) {
    return BadRequest(fmt::format("limits: a deadline beyond {} ms", kMaxMilliseconds));
  }
  out.max_tokens = limits.max_tokens();
  out.context = limits.context();
  out.deadline = std::chrono::milliseconds(limits.deadline_ms());
  out.queue_deadline = std::chrono::milliseconds(limits.queue_ms());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<supervisor::OffloadRequest> CheckGenerate(const v1::GenerateRequest& request, uid_t uid,
                                                         const Clock& clock, Duration max_linger) {
  RETURN_IF_ERROR(CheckSampling(request.sampling()));
  supervisor::OffloadRequest out;
  RETURN_IF_ERROR(TakeInput(request, out));
  RETURN_IF_ERROR(TakeLimits(request, out));
  const auto max_linger_ms =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(max_linger).count());
  if (request.linger_ms() > max_linger_ms) {
    return BadRequest(fmt::format("linger_ms: {} exceeds limits.linger, {}", request.linger_ms(), max_linger_ms));
  }
  if (request.idempotency_key().size() > kMaxIdempotencyKeyBytes) {
    return BadRequest(
        fmt::format("idempotency_key: {} bytes, limit {}", request.idempotency_key().size(), kMaxIdempotencyKeyBytes));
  }
  out.sampling = request.sampling();
  if (!out.sampling.has_seed()) {
    uint64_t seed = 0;
    if (sys::GetRandom(&seed, sizeof(seed)) != sizeof(seed)) return Error(Reason::kInternal, "getrandom: no seed");
    out.sampling.set_seed(seed);
  }
  out.priority = request.priority();
  out.on_worker_death = request.on_worker_death();
  out.require_exact = request.require_exact();
  out.uid = uid;
  out.now_unix_s = request.now_unix_s() != 0 ? request.now_unix_s()
                                             : std::chrono::duration_cast<std::chrono::seconds>(clock.Wall()).count();
  return out;
}

}  // namespace bulkhead::daemon
