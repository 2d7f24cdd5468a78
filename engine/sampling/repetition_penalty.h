// Which ids occurred among the last tokens of a sequence, and the penalty on them: a positive logit is divided by it,
// another multiplied (Keskar et al. 2019, "CTRL", section 4.1, with the sign rule everybody uses since). An id counts
// once, however often it occurred. Allocates in its constructor only. Not thread-safe: one per sequence.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sampling/candidates.h"

namespace bulkhead::engine {

class RepetitionPenalty {
 public:
  // A window of 0 or a penalty of 1 is none.
  RepetitionPenalty(float penalty, size_t window);

  // Tokens now in the sequence, oldest first.
  void Accept(std::span<const int32_t> ids);

  // Changes `logits`; appends what stood there to `changed`, at most window() entries. Ids outside the row are passed
  // over.
  void Apply(std::span<float> logits, std::vector<Candidate>& changed) const;

  [[nodiscard]] size_t window() const { return window_; }

 private:
  struct Occurrence {
    int32_t id;
    uint32_t count;
  };
  void Add(int32_t id);
  void Remove(int32_t id);

  float penalty_;
  size_t window_;
  std::vector<int32_t> recent_;  // a ring, whose oldest stands at next_ once it is full
  size_t next_ = 0;
  std::vector<Occurrence> occurrences_;  // of the ring's ids, ascending
};

}  // namespace bulkhead::engine
