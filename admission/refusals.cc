#include <fmt/format.h>

#include "admission/assessment.h"

namespace bulkhead::admission {
namespace {

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

Refusal Make(Verdict verdict, std::string message, std::string hint, const Figures& figures = {},
             Duration retry_after = {}) {
  return {.reason = ReasonFor(verdict),
          .message = std::move(message),
          .hint = std::move(hint),
          .asked = figures.asked,
          .available = figures.available,
          .limit = figures.limit,
          .retry_after = retry_after};
}

Refusal ExplainCeiling(const ModelFacts& facts, const Figures& figures) {
  // `available` is the largest context, in tokens, that would do.
  const bool smaller_would_do = figures.available != 0;
  std::string message = fmt::format("model {}: needs {} with one sequence, the ceiling is {}", facts.model,
                                    FormatBytes(figures.asked), FormatBytes(figures.limit));
  std::string hint = "bulkhead policy";
  if (smaller_would_do) {
    message += fmt::format("; a context of {} tokens would fit", figures.available);
    hint = fmt::format("bulkhead run {} --context {}", facts.model, figures.available);
  }
  return Make(Verdict::kExceedsCeiling, std::move(message), std::move(hint), {figures.asked, 0, figures.limit});
}

}  // namespace

std::string FormatBytes(uint64_t bytes) {
  constexpr uint64_t kKibi = 1024;
  if (bytes < kKibi) return fmt::format("{} bytes", bytes);
  if (bytes < kKibi * kKibi) return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / kKibi);
  if (bytes < kKibi * kKibi * kKibi) return fmt::format("{:.1f} MiB", static_cast<double>(bytes >> 10) / kKibi);
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes >> 20) / kKibi);
}

Refusal Explain(Verdict verdict, const ModelFacts& facts, const Figures& figures) {
  const std::string asked = FormatBytes(figures.asked);
  const std::string available = FormatBytes(figures.available);
  const std::string limit = FormatBytes(figures.limit);
  const std::string& model = facts.model;
  switch (verdict) {
    case Verdict::kDisabledByPolicy:
      return Make(verdict, fmt::format("model {}: the policy's ceiling is 0 bytes, so no model may be loaded", model),
                  "bulkhead policy");
    case Verdict::kExceedsCeiling:
      return ExplainCeiling(facts, figures);
    case Verdict::kLiveMemoryUnknown:
      return Make(verdict, fmt::format("model {}: the machine's available memory cannot be read", model),
                  "bulkhead doctor");
    case Verdict::kContextTooLarge:
      return Make(
          verdict,
          fmt::format("model {}: a context of {} tokens was asked for, {} are granted, at most {} can be", model,
                      figures.asked, figures.available, figures.limit),
          figures.limit == 0 ? "bulkhead policy" : fmt::format("bulkhead run {} --context {}", model, figures.limit),
          figures);
    case Verdict::kWaitingForMemory:
      return Make(verdict,
                  fmt::format("model {}: needs {}, {} of the ceiling's {} are free, the rest is busy or pinned", model,
                              asked, available, limit),
                  "bulkhead ps --memory", figures, std::chrono::seconds(5));
    case Verdict::kInsufficientLiveMemory:
      return Make(verdict,
                  fmt::format("model {}: needs {}, the machine has {} to spare of {} available", model, asked,
                              available, limit),
                  fmt::format("bulkhead preflight {}", model), figures, std::chrono::seconds(5));
    case Verdict::kPendingTeardown:
      return Make(verdict, fmt::format("model {}: waits for a worker that is being torn down", model), "bulkhead ps",
                  figures, std::chrono::seconds(1));
    case Verdict::kAllowed:
    case Verdict::kQueueFull:
    case Verdict::kBreakerOpen:
    case Verdict::kModelMaintenance:
      break;
  }
  return Make(verdict, fmt::format("model {}: {}", model, NameOf(verdict)), "bulkhead ps", figures);
}

Refusal ExplainQueueFull(const ModelFacts& facts, uint32_t waiting, uint32_t limit, bool of_model) {
  return Make(Verdict::kQueueFull,
              fmt::format("model {}: {} requests wait{}, the limit is {}", facts.model, waiting,
                          of_model ? " for it" : ", all models together", limit),
              "bulkhead ps --requests", {uint64_t{waiting} + 1, 0, limit}, std::chrono::seconds(1));
}

Refusal ExplainBlocked(Verdict verdict, const ModelFacts& facts, Duration retry_after, std::string_view detail) {
  const std::string why = verdict == Verdict::kBreakerOpen ? "its workers died repeatedly" : "it is under maintenance";
  std::string message = fmt::format("model {}: {}", facts.model, detail.empty() ? why : std::string(detail));
  if (retry_after > Duration::zero()) message += fmt::format("; try again in {:.0f} s", Seconds(retry_after));
  std::string hint = verdict == Verdict::kBreakerOpen ? fmt::format("bulkhead unblock {}", facts.model) : "bulkhead ps";
  return Make(verdict, std::move(message), std::move(hint), {}, retry_after);
}

Refusal ExplainDeadline(Verdict verdict, bool for_sequence, const ModelFacts& facts, const Figures& figures,
                        Duration waited) {
  Refusal refusal;
  if (verdict == Verdict::kAllowed) {
    refusal.reason = Reason::kQueueDeadlineExceeded;
    refusal.message = fmt::format("model {}: its worker was not ready in time", facts.model);
    refusal.hint = "bulkhead ps";
  } else if (for_sequence) {
    refusal =
        Make(verdict, fmt::format("model {}: all {} sequences of its worker are busy", facts.model, figures.limit),
             "bulkhead ps --requests", figures, std::chrono::seconds(1));
    refusal.reason = Reason::kQueueDeadlineExceeded;
  } else {
    refusal = Explain(verdict, facts, figures);
  }
  refusal.message += fmt::format("; waited {:.1f} s", Seconds(waited));
  return refusal;
}

}  // namespace bulkhead::admission
