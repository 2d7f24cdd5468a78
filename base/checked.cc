#include "base/checked.h"

namespace bulkhead {

std::optional<uint64_t> CheckedAlignUp(uint64_t value, uint64_t alignment) {
  const auto raised = CheckedAdd(value, alignment - 1);
  if (!raised.has_value()) return std::nullopt;
  return *raised & ~(alignment - 1);
}

}  // namespace bulkhead
