// Arithmetic on numbers that came from outside: every sum, product and rounding is checked, and names what overflowed.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>

namespace bulkhead {

template <std::integral T>
[[nodiscard]] constexpr std::optional<T> CheckedAdd(T a, T b) {
  T result;
  if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
  return result;
}

template <std::integral T>
[[nodiscard]] constexpr std::optional<T> CheckedMul(T a, T b) {
  T result;
  if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
  return result;
}

// `value` rounded up to a multiple of `alignment`, which is a power of two.
[[nodiscard]] std::optional<uint64_t> CheckedAlignUp(uint64_t value, uint64_t alignment);

}  // namespace bulkhead
