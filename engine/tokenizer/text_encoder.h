// Turns text without special tokens into ids; one for each kind of tokenizer. Thread-safe: immutable.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bulkhead::engine {

class TextEncoder {
 public:
  virtual ~TextEncoder() = default;

  // Appends the ids of `text`, which is not empty. `after_special`: it stands at the start or behind a special token.
  virtual void Encode(std::string_view text, bool after_special, std::vector<int32_t>& ids) const = 0;

  // Appends the bytes of a normal or byte piece.
  virtual void AppendBytes(int32_t id, std::string& out) const = 0;
};

}  // namespace bulkhead::engine
