#include "engine/sampling/candidates.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>

#include "engine/sampling/exact_math.h"

namespace bulkhead::engine {
namespace {

constexpr size_t kBlock = 32;
// Ranges of 1/8 below the best logit; the last takes all the rest.
constexpr size_t kRanges = 256;
constexpr float kRangesPerUnit = 8;

bool Better(const Candidate& a, const Candidate& b) { return a.logit != b.logit ? a.logit > b.logit : a.id < b.id; }

// NaN and +inf are not <= FLT_MAX.
bool AllUsable(std::span<const float> logits) {
  int bad = 0;
  for (const float logit : logits) bad |= static_cast<int>(!(logit <= FLT_MAX));
  return bad == 0;
}

bool AnyAbove(const float* block, float threshold) {
  int above = 0;
  for (size_t i = 0; i < kBlock; ++i) above |= static_cast<int>(block[i] > threshold);
  return above != 0;
}

size_t RangeOf(float logit, float max) {
  const float range = (max - logit) * kRangesPerUnit;
  return range < kRanges - 1 ? static_cast<size_t>(range) : kRanges - 1;
}

}  // namespace

bool Candidates::TakeAll(std::span<const float> logits) {
  if (!AllUsable(logits)) return false;
  count_ = logits.size();
  sorted_ = false;
  for (size_t i = 0; i < count_; ++i) storage_[i] = {logits[i], static_cast<int32_t>(i)};
  return std::isfinite(MaxLogit());
}

bool Candidates::TakeTop(std::span<const float> logits, size_t k) {
  if (!AllUsable(logits)) return false;
  k = std::min(k, logits.size());
  for (size_t i = 0; i < k; ++i) storage_[i] = {logits[i], static_cast<int32_t>(i)};
  const auto heap = storage_.first(k);
  // The worst of the k stands on top; ids ascend, so an equal newcomer loses.
  std::make_heap(heap.begin(), heap.end(), Better);
  for (size_t i = k; i < logits.size();) {
    if (i + kBlock <= logits.size() && !AnyAbove(&logits[i], heap[0].logit)) {
      i += kBlock;
      continue;
    }
    const size_t end = std::min(i + kBlock, logits.size());
    for (; i < end; ++i) {
      if (!(logits[i] > heap[0].logit)) continue;
      std::pop_heap(heap.begin(), heap.end(), Better);
      heap.back() = {logits[i], static_cast<int32_t>(i)};
      std::push_heap(heap.begin(), heap.end(), Better);
    }
  }
  std::sort_heap(heap.begin(), heap.end(), Better);
  count_ = k;
  sorted_ = true;
  return std::isfinite(heap[0].logit);
}

float Candidates::MaxLogit() const {
  if (sorted_) return storage_[0].logit;
  float max = -INFINITY;
  for (const Candidate& candidate : items()) max = std::max(max, candidate.logit);
  return max;
}

double Candidates::SumOfWeights(float max) const {
  // Four sums, so that the additions need not wait for one another.
  double sums[4] = {};
  for (size_t i = 0; i < count_; ++i) sums[i % 4] += Exp(double{storage_[i].logit} - max);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Sums weights by ranges of logit, best first, to find how far down sorting must go.
Candidates::Front Candidates::SortUntil(double part, float max) {
  if (sorted_) return {count_, SumOfWeights(max)};
  std::array<double, kRanges> sums = {};
  for (const Candidate& candidate : items()) sums[RangeOf(candidate.logit, max)] += Exp(double{candidate.logit} - max);
  double total = 0;
  for (const double sum : sums) total += sum;
  size_t last = 0;
  for (double sum = sums[0]; sum < part * total && last + 1 < kRanges; sum += sums[last]) ++last;
  const auto begin = storage_.begin();
  const auto end = std::partition(begin, begin + count_,
                                  [&](const Candidate& candidate) { return RangeOf(candidate.logit, max) <= last; });
  std::sort(begin, end, Better);
  return {static_cast<size_t>(end - begin), total};
}

void Candidates::SortAll() {
  if (!sorted_) std::sort(storage_.begin(), storage_.begin() + count_, Better);
  sorted_ = true;
}

void Candidates::TopK(size_t k) {
  if (k >= count_) return;
  if (!sorted_) std::partial_sort(storage_.begin(), storage_.begin() + k, storage_.begin() + count_, Better);
  sorted_ = true;
  count_ = k;
}

void Candidates::TopP(double p, size_t min_keep) {
  if (p >= 1 || count_ == 0) return;
  const float max = MaxLogit();
  Front front = SortUntil(p, max);
  const double target = p * front.all_weight;
  double sum = 0;
  for (size_t i = 0; i < count_; ++i) {
    // Rounding may leave the sum a little short of what the ranges promised.
    if (i == front.count) {
      std::sort(storage_.begin() + front.count, storage_.begin() + count_, Better);
      front.count = count_;
    }
    sum += Exp(double{storage_[i].logit} - max);
    if (sum >= target && i + 1 >= min_keep) {
      count_ = i + 1;
      break;
    }
  }
  sorted_ = true;
}

void Candidates::MinP(double p, size_t min_keep) {
  if (p <= 0 || count_ == 0) return;
  const double threshold = double{MaxLogit()} + Log(p);
  const auto passes = [&](const Candidate& candidate) { return candidate.logit >= threshold; };
  const auto begin = storage_.begin();
  const auto passing = static_cast<size_t>(std::count_if(begin, begin + count_, passes));
  if (passing < min_keep) {
    TopK(min_keep);
    return;
  }
  std::remove_if(begin, begin + count_, [&](const Candidate& candidate) { return !passes(candidate); });
  count_ = passing;
}

void Candidates::Scale(float temperature) {
  for (Candidate& candidate : storage_.first(count_)) candidate.logit /= temperature;
  if (!sorted_) return;
  // Rounding may have made ties that do not stand by id.
  sorted_ = false;
  SortAll();
}

int32_t Candidates::Pick(double u) {
  const float max = MaxLogit();
  Front front = SortUntil(u, max);
  const double target = u * front.all_weight;
  double sum = 0;
  int32_t last = storage_[0].id;
  for (size_t i = 0; i < count_; ++i) {
    if (i == front.count) {
      std::sort(storage_.begin() + front.count, storage_.begin() + count_, Better);
      front.count = count_;
    }
    const double weight = Exp(double{storage_[i].logit} - max);
    // A last one for the case that rounding leaves the sum below the target.
    if (weight > 0) last = storage_[i].id;
    sum += weight;
    if (sum > target) break;
  }
  sorted_ = true;
  return last;
}

}  // namespace bulkhead::engine
