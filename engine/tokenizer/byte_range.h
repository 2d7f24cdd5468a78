// Bytes [begin, end) of a text.
#pragma once

#include <cstddef>

namespace bulkhead::engine {

struct ByteRange {
  size_t begin = 0;
  size_t end = 0;
};

}  // namespace bulkhead::engine
