// The version of the canonical arithmetic (docs/numerics.md), where programs that do not compute can say it too: it is
// carried in Hello. A change of any rule there raises it.
#pragma once

#include <cstdint>

namespace bulkhead {

inline constexpr uint32_t kNumericsVersion = 1;

}  // namespace bulkhead
