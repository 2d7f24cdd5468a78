// The tokens still in the running for one choice, and the samplers that narrow them. Candidates stand either by
// ascending id or by descending logit with ties by ascending id; nothing else, so every sum has one order. Works in
// storage lent by the caller and allocates nothing. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace bulkhead::engine {

struct Candidate {
  float logit;
  int32_t id;
};

class Candidates {
 public:
  // `storage` must have room for a whole row and outlive this.
  explicit Candidates(std::span<Candidate> storage) : storage_(storage) {}

  // Takes all of a row. False where it holds a NaN or +inf, or nothing above -inf.
  [[nodiscard]] bool TakeAll(std::span<const float> logits);
  // Takes the `k` best of a row, best first, without sorting it. False as TakeAll. k >= 1.
  [[nodiscard]] bool TakeTop(std::span<const float> logits, size_t k);

  // Keeps the `k` best.
  void TopK(size_t k);
  // Keeps the fewest best whose probabilities reach `p`, but at least `min_keep`.
  void TopP(double p, size_t min_keep = 1);
  // Keeps those at least `p` times as probable as the best, but at least `min_keep`.
  void MinP(double p, size_t min_keep = 1);
  // Divides every logit by `temperature` > 0.
  void Scale(float temperature);

  // The candidate at which the sum of probabilities, best first, exceeds `u` in [0, 1).
  [[nodiscard]] int32_t Pick(double u);

  [[nodiscard]] std::span<const Candidate> items() const { return storage_.first(count_); }

 private:
  [[nodiscard]] float MaxLogit() const;
  // The sum of e^(logit - max).
  [[nodiscard]] double SumOfWeights(float max) const;
  struct Front {
    size_t count = 0;       // candidates that stand in order
    double all_weight = 0;  // SumOfWeights
  };
  // Puts in front, in order, at least as many of the best as make up `part` of the sum of weights.
  Front SortUntil(double part, float max);
  void SortAll();

  std::span<Candidate> storage_;
  size_t count_ = 0;
  bool sorted_ = false;
};

}  // namespace bulkhead::engine
