// Whether this build runs under a sanitizer, ten and more times slower: long walks take a shorter form there.
#pragma once

namespace bulkhead::engine {

#ifdef BULKHEAD_SANITIZER
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace bulkhead::engine
