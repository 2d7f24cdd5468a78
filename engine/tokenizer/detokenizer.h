// Bytes of tokens to text that is valid UTF-8 at every step: a character split over tokens is held back until it is
// whole. What never becomes a character is shown as U+FFFD, one for each maximal subpart (Unicode 15, section 3.9,
// "U+FFFD Substitution of Maximal Subparts"), so the concatenated output is the same however the bytes were split.
// At most 3 bytes are held. Not thread-safe: one per sequence.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bulkhead::engine {

class Detokenizer {
 public:
  // Appends to `text` what `bytes` completed.
  void Push(std::string_view bytes, std::string& text);

  // The stream ends: an incomplete character becomes one U+FFFD. True where there was one. The next Push starts anew.
  bool Finish(std::string& text);

  [[nodiscard]] size_t held_bytes() const { return held_.size(); }

 private:
  std::string held_;  // a valid beginning of one character
};

}  // namespace bulkhead::engine
