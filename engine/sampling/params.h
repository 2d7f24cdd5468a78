// Sampling parameters of one request, and the defaults a model file gives in general.sampling.*.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/gguf/gguf.h"

namespace bulkhead::engine {

inline constexpr size_t kMaxStopStrings = 16;
inline constexpr size_t kMaxStopBytes = 256;
inline constexpr int32_t kMaxRepeatLastN = 8192;

struct SamplingParams {
  float temperature = 0.8f;    // 0 = greedy: the lowest id of the largest logit
  int32_t top_k = 40;          // 0 = off
  float top_p = 0.95f;         // 1 = off
  float min_p = 0.05f;         // 0 = off
  float repeat_penalty = 1;    // 1 = off
  int32_t repeat_last_n = 64;  // tokens looked back on, prompt included; 0 = off
  uint64_t seed = 0;
  std::vector<std::string> stop;  // matched on bytes
  bool ignore_eos = false;
  bool logprobs = false;
};

// kInvalidRequest naming the field, its value and its range.
absl::Status Validate(const SamplingParams& params);

// The struct's defaults, each replaced by the file's general.sampling.{temp, top_k, top_p, min_p, penalty_repeat,
// penalty_last_n} where that is there, of the right type and in range; a useless value in a file is passed over.
SamplingParams DefaultSampling(const GgufFile& file);

}  // namespace bulkhead::engine
