#include "admission/actions.h"

#include <array>

namespace bulkhead::admission {

std::string_view NameOf(EvictionCause cause) {
  constexpr std::array<std::string_view, 4> kNames = {"make-room", "idle", "over-ceiling", "outgrown"};
  return kNames[static_cast<size_t>(cause)];
}

}  // namespace bulkhead::admission
