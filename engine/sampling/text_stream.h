// The text side of one sequence: ids -> bytes -> stop strings -> valid UTF-8. Rebuilt after a death by pushing the ids
// again. Not thread-safe: one per sequence; the tokenizer must outlive it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/sampling/stop_matcher.h"
#include "engine/tokenizer/detokenizer.h"
#include "engine/tokenizer/tokenizer.h"

namespace bulkhead::engine {

class TextStream {
 public:
  TextStream(const Tokenizer& tokenizer, const std::vector<std::string>& stops)
      : tokenizer_(tokenizer), stops_(stops) {}

  // Appends to `text` what the token makes showable; answers the index of the stop string it completed.
  std::optional<size_t> Push(int32_t id, std::string& text);

  // Every terminal calls this once: what was held back comes out (nothing of a matched stop string). True where an
  // incomplete character was cut and shown as U+FFFD.
  bool Finish(std::string& text);

 private:
  const Tokenizer& tokenizer_;
  StopMatcher stops_;
  Detokenizer detokenizer_;
  std::string bytes_;
  std::string released_;
};

}  // namespace bulkhead::engine
