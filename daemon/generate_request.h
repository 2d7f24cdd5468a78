// A client's GenerateRequest, checked. Pure but for the seed.
#pragma once

#include "base/clock.h"
#include "base/status.h"
#include "bulkhead/v1/client.pb.h"
#include "supervisor/request.h"

namespace bulkhead::daemon {

inline constexpr int kMaxStopStrings = 16;
inline constexpr size_t kMaxStopBytes = 256;
inline constexpr size_t kMaxIdempotencyKeyBytes = 128;

// Everything but the model and the inference id. kInvalidRequest names field, value and limit, never any text of the
// request. A seed the client did not give comes from getrandom.
absl::StatusOr<supervisor::OffloadRequest> CheckGenerate(const v1::GenerateRequest& request, uid_t uid,
                                                         const Clock& clock, Duration max_linger);

}  // namespace bulkhead::daemon
