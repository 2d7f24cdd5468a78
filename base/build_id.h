// Which build this is: the version and, where it was built from a checkout, the commit. Programs of one build carry the
// same id; a worker whose id differs from the daemon's is refused.
#pragma once

#include <string_view>

namespace bulkhead {

// Such as "0.1.0+1a2b3c4d5e6f". Lives for ever.
std::string_view BuildId();

// Such as "0.1.0".
std::string_view Version();

}  // namespace bulkhead
