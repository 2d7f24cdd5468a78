// What the machine itself can do: the yardsticks beside which the engine's speed is printed.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "kernels/compute_pool.h"

namespace bulkhead::bench {

// Bytes a second at which the pool's active threads read `bytes` once, end to end, as fast as they can.
double ReadBandwidth(kernels::ComputePool& pool, std::span<const std::byte> bytes);

struct Int8Peak {
  double operations = 0;  // multiplications and additions a second
  std::string how;        // the instructions it was measured with
};

// Int8 multiply-add from registers alone, on the pool's active threads.
Int8Peak MeasureInt8Peak(kernels::ComputePool& pool);

}  // namespace bulkhead::bench
