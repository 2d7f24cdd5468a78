// Finds stop strings in a byte stream, across any splits. Bytes that may be the beginning of a stop string are held
// back: always the longest such tail, never more. The match that ends first wins; of those, the one that began first.
// Nothing of the match, and nothing after it, is released. Memory and time are bounded by the stop strings' lengths
// (Aho-Corasick). Not thread-safe: one per sequence.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bulkhead::engine {

class StopMatcher {
 public:
  // Empty strings are passed over.
  explicit StopMatcher(const std::vector<std::string>& stops);

  // Appends to `released` what can no longer be part of a match. Answers the index in `stops` of the string matched;
  // after that, further bytes are dropped and the answer stays.
  std::optional<size_t> Push(std::string_view bytes, std::string& released);

  // The stream ends without a match (any terminal): releases what was held back.
  void Flush(std::string& released);

  [[nodiscard]] std::optional<size_t> matched() const { return matched_; }
  [[nodiscard]] size_t held_bytes() const { return held_.size(); }

 private:
  struct Node {
    uint32_t depth = 0;
    uint32_t fail = 0;
    uint32_t first_child = 0;  // 0 = none; the root is nobody's child
    uint32_t next_sibling = 0;
    int32_t longest_match = -1;  // index of the longest stop string that ends here
    uint8_t byte = 0;
  };
  [[nodiscard]] uint32_t Child(uint32_t node, uint8_t byte) const;
  [[nodiscard]] uint32_t Step(uint32_t node, uint8_t byte) const;
  void AddString(const std::string& stop, int32_t index);
  void LinkFailures();

  std::vector<Node> nodes_;
  std::vector<size_t> lengths_;
  std::string held_;  // the path from the root to state_
  uint32_t state_ = 0;
  std::optional<size_t> matched_;
};

}  // namespace bulkhead::engine
