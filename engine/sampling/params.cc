#include "engine/sampling/params.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace bulkhead::engine {
namespace {

constexpr float kMaxTemperature = 100;
constexpr float kMaxPenalty = 100;

absl::Status OutOfRange(std::string_view field, double value, std::string_view range) {
  return Error(Reason::kInvalidRequest, fmt::format("sampling.{}: {}, {}", field, value, range));
}

void TakeFloat(const GgufFile& file, std::string_view key, float low, float high, float& out) {
  const GgufValue* value = file.Find(key);
  if (value == nullptr) return;
  const std::optional<double> number = value->AsDouble();
  if (number.has_value() && *number >= low && *number <= high) out = static_cast<float>(*number);
}

void TakeInt(const GgufFile& file, std::string_view key, int32_t high, int32_t& out) {
  const GgufValue* value = file.Find(key);
  if (value == nullptr) return;
  const std::optional<int64_t> number = value->AsSigned();
  if (number.has_value() && *number >= 0 && *number <= high) out = static_cast<int32_t>(*number);
}

}  // namespace

absl::Status Validate(const SamplingParams& params) {
  // Written so that NaN fails.
  if (!(params.temperature >= 0 && params.temperature <= kMaxTemperature)) {
    return OutOfRange("temperature", params.temperature, "between 0 and 100 is wanted");
  }
  if (params.top_k < 0) return OutOfRange("top_k", params.top_k, "at least 0 is wanted");
  if (!(params.top_p > 0 && params.top_p <= 1)) {
    return OutOfRange("top_p", params.top_p, "above 0 and at most 1 is wanted");
  }
  if (!(params.min_p >= 0 && params.min_p <= 1)) return OutOfRange("min_p", params.min_p, "between 0 and 1 is wanted");
  if (!(params.repeat_penalty > 0 && params.repeat_penalty <= kMaxPenalty)) {
    return OutOfRange("repeat_penalty", params.repeat_penalty, "above 0 and at most 100 is wanted");
  }
  if (params.repeat_last_n < 0 || params.repeat_last_n > kMaxRepeatLastN) {
    return OutOfRange("repeat_last_n", params.repeat_last_n, "between 0 and 8192 is wanted");
  }
  if (params.stop.size() > kMaxStopStrings) {
    return OutOfRange("stop", static_cast<double>(params.stop.size()), "at most 16 strings are allowed");
  }
  for (const std::string& stop : params.stop) {
    if (stop.size() > kMaxStopBytes) {
      return OutOfRange("stop", static_cast<double>(stop.size()), "at most 256 bytes a string are allowed");
    }
  }
  return absl::OkStatus();
}

SamplingParams DefaultSampling(const GgufFile& file) {
  SamplingParams params;
  // top_p and the penalty must stay above 0.
  constexpr float kSmallest = std::numeric_limits<float>::min();
  TakeFloat(file, "general.sampling.temp", 0, kMaxTemperature, params.temperature);
  TakeFloat(file, "general.sampling.top_p", kSmallest, 1, params.top_p);
  TakeFloat(file, "general.sampling.min_p", 0, 1, params.min_p);
  TakeFloat(file, "general.sampling.penalty_repeat", kSmallest, kMaxPenalty, params.repeat_penalty);
  TakeInt(file, "general.sampling.top_k", std::numeric_limits<int32_t>::max(), params.top_k);
  TakeInt(file, "general.sampling.penalty_last_n", kMaxRepeatLastN, params.repeat_last_n);
  return params;
}

}  // namespace bulkhead::engine
