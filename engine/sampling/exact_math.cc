#include "engine/sampling/exact_math.h"

#include <bit>
#include <cstdint>

namespace bulkhead::engine {
namespace {

constexpr double kLog2OfE = 0x1.71547652b82fep+0;
// ln 2 in two parts; n * kLn2High is exact for |n| < 2^11.
constexpr double kLn2High = 0x1.62e42fefap-1;
constexpr double kLn2Low = 0x1.cf79abc9e3b3ap-40;
// Adding this rounds to an integer, which then stands in the low bits.
constexpr double kRounder = 0x1.8p52;

double PowerOfTwo(int64_t n) { return std::bit_cast<double>(static_cast<uint64_t>(n + 1023) << 52); }

}  // namespace

double Exp(double x) {
  if (!(x > -700)) return 0;
  const double shifted = x * kLog2OfE + kRounder;
  const double n = shifted - kRounder;
  const double r = (x - n * kLn2High) - n * kLn2Low;
  // 1 + r + r^2/2! + ... + r^11/11!, |r| <= 0.347.
  double sum = 1.0 / 39916800;
  sum = sum * r + 1.0 / 3628800;
  sum = sum * r + 1.0 / 362880;
  sum = sum * r + 1.0 / 40320;
  sum = sum * r + 1.0 / 5040;
  sum = sum * r + 1.0 / 720;
  sum = sum * r + 1.0 / 120;
  sum = sum * r + 1.0 / 24;
  sum = sum * r + 1.0 / 6;
  sum = sum * r + 0.5;
  sum = sum * r + 1;
  sum = sum * r + 1;
  return sum * PowerOfTwo(static_cast<int64_t>(n));
}

double Log(double x) {
  const auto bits = std::bit_cast<uint64_t>(x);
  const auto exponent = static_cast<int64_t>(bits >> 52) - 1023;
  const double mantissa = x * PowerOfTwo(-exponent);  // in [1, 2)
  // Halley's iteration on e^-y * mantissa = 1, from the chord of log over [1, 2].
  double y = (mantissa - 1) * (kLn2High + kLn2Low);
  for (int i = 0; i < 3; ++i) {
    const double product = Exp(-y) * mantissa;
    y += 2 * (product - 1) / (product + 1);
  }
  const auto n = static_cast<double>(exponent);
  return n * kLn2High + (y + n * kLn2Low);
}

}  // namespace bulkhead::engine
