// exp and log of plain IEEE double operations, so that a draw does not depend on which variant of libm a CPU gets.
// Exp: Cody and Waite's argument reduction and a Taylor polynomial, relative error below 1e-12. Thread-safe.
#pragma once

namespace bulkhead::engine {

// e^x for x <= 0 (0 below -700).
double Exp(double x);

// Natural logarithm of a positive, normal x.
double Log(double x);

}  // namespace bulkhead::engine
