// What a requester asks of admission.
#pragma once

#include <cstdint>
#include <memory>

#include "admission/estimate.h"
#include "base/clock.h"

namespace bulkhead::admission {

enum class Priority : uint8_t { kInteractive, kNormal, kBatch };
inline constexpr size_t kPriorityCount = 3;

struct AdmitRequest {
  std::shared_ptr<const ModelFacts> facts{};
  uint32_t context = 0;  // tokens one sequence needs; 0 = the default
  uint32_t sequences =
      0;  // 0 = the default, shrinking to one to fit; else exactly as many, if a worker is to be loaded
  // True for an explicit load: a worker of just this context and at least these sequences, neither raised to the
  // default nor served by a smaller pool.
  bool exact_shape = false;
  Priority priority = Priority::kNormal;
  Duration deadline = Duration::max();  // monotonic; until GrantAction
  bool may_evict = true;                // false: do not release idle workers for it
};

}  // namespace bulkhead::admission
