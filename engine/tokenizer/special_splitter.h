// Cuts a text at the special tokens written out in it. User-defined pieces are always cut out; control and unknown ones
// where the caller parses specials. Longer pieces go first, over the whole text, then shorter ones in what is left,
// each from left to right. Thread-safe: immutable.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/tokenizer/byte_range.h"
#include "engine/tokenizer/vocabulary.h"

namespace bulkhead::engine {

struct Fragment {
  ByteRange text;      // where it stands
  int32_t token = -1;  // -1 = text to be encoded
};

class SpecialSplitter {
 public:
  // `vocabulary` must outlive this.
  explicit SpecialSplitter(const Vocabulary& vocabulary);

  // In order, without empty text. `literal`: ascending ranges in which control tokens are not looked for.
  [[nodiscard]] std::vector<Fragment> Split(std::string_view text, bool parse_special,
                                            std::span<const ByteRange> literal) const;

 private:
  // The special pieces of one length.
  struct Group {
    size_t length = 0;
    bool first_bytes[256] = {};
    int only_first = -1;  // where all begin with the same byte
  };
  struct Search;
  void FindOfLength(const Group& group, Search& search) const;

  const Vocabulary& vocabulary_;
  std::vector<Group> groups_;  // longest first
};

}  // namespace bulkhead::engine
