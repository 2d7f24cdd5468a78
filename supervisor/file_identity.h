// Which file a descriptor is of: what admission counts weights by, and what tells whether a file changed under a
// worker.
#pragma once

#include "admission/estimate.h"
#include "base/status.h"

namespace bulkhead::supervisor {

using admission::FileIdentity;

// kModelInvalid for anything but a regular file; kInternal names errno.
absl::StatusOr<FileIdentity> IdentityOf(int fd);

}  // namespace bulkhead::supervisor
