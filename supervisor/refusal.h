// Refusals of admission, and of the queues before it, as the offload's error. Pure.
#pragma once

#include <cstddef>
#include <string_view>

#include "admission/verdict.h"
#include "supervisor/stream_sink.h"

namespace bulkhead::supervisor {

OffloadError ErrorOf(const admission::Refusal& refusal);

// `what` waits with `length` others, and no more than `limit` may.
OffloadError QueueFull(std::string_view what, size_t length, size_t limit);

}  // namespace bulkhead::supervisor
