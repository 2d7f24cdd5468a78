#include "admission/actions.h"

#include <array>

namespace bulkhead::admission {

std::string_view NameOf(EvictionCause cause) {
  constexpr std::array<std::string_view, 5> kNames = {"make-room", "idle", "over-ceiling", "outgrown", "pressure"};
  return kNames[static_cast<size_t>(cause)];
}

}  // namespace bulkhead::admission
