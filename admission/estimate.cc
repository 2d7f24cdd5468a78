#include "admission/estimate.h"

#include <algorithm>
#include <limits>

#include "base/checked.h"

namespace bulkhead::admission {
namespace {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

std::optional<uint64_t> Sum(std::initializer_list<uint64_t> terms) {
  uint64_t sum = 0;
  for (const uint64_t term : terms) {
    const auto next = CheckedAdd(sum, term);
    if (!next.has_value()) return std::nullopt;
    sum = *next;
  }
  return sum;
}

}  // namespace

uint32_t DefaultContext(const ModelFacts& facts) {
  const uint32_t usual = facts.usual_context == 0 ? kDefaultContext : facts.usual_context;
  return facts.trained_context == 0 ? usual : std::min(facts.trained_context, usual);
}

uint32_t DefaultSequences(const ModelFacts& facts) {
  return facts.usual_sequences == 0 ? kDefaultSequences : facts.usual_sequences;
}

std::optional<Charge> EstimateCharge(const ModelFacts& facts, Shape shape, uint64_t learned_private) {
  const uint64_t pages = (uint64_t{shape.context} + kPositionsPerPage - 1) / kPositionsPerPage;
  // At most 2^24 pages of 2^8 positions times 2^32 sequences: exactly 2^64 is possible, so even this is checked.
  const auto positions = CheckedMul(pages * kPositionsPerPage, uint64_t{shape.sequences});
  if (!positions.has_value()) return std::nullopt;
  const auto kv = CheckedMul(*positions, facts.kv_bytes_per_token);
  const auto recurrent = CheckedMul(uint64_t{shape.sequences}, facts.recurrent_bytes_per_sequence);
  if (!kv.has_value() || !recurrent.has_value()) return std::nullopt;
  Charge charge{.weights = facts.weight_bytes,
                .kv = *kv,
                .recurrent = *recurrent,
                .arena = facts.arena_bytes,
                .overhead = facts.overhead_bytes};
  const auto own = Sum({charge.kv, charge.recurrent, charge.arena, charge.overhead});
  if (!own.has_value()) return std::nullopt;
  if (learned_private > *own) charge.correction = learned_private - *own;
  if (!CheckedAdd(std::max(*own, learned_private), charge.weights).has_value()) return std::nullopt;
  return charge;
}

uint32_t LargestContext(const ModelFacts& facts, uint64_t bytes) {
  const uint32_t top = facts.trained_context == 0 ? std::numeric_limits<uint32_t>::max() : facts.trained_context;
  const auto fixed =
      Sum({facts.weight_bytes, facts.recurrent_bytes_per_sequence, facts.arena_bytes, facts.overhead_bytes});
  if (!fixed.has_value() || *fixed > bytes) return 0;
  const auto page = CheckedMul(facts.kv_bytes_per_token, uint64_t{kPositionsPerPage});
  if (!page.has_value()) return 0;
  if (*page == 0) return top;
  const uint64_t pages = (bytes - *fixed) / *page;
  // The divisor keeps pages * 256 inside u64; anything beyond u32 is capped anyway.
  if (pages > std::numeric_limits<uint32_t>::max() / kPositionsPerPage) return top;
  return static_cast<uint32_t>(std::min<uint64_t>(top, pages * kPositionsPerPage));
}

uint64_t AfterOom(uint64_t wanted_private_bytes) {
  return CheckedAdd(wanted_private_bytes, wanted_private_bytes / 8).value_or(kMax);
}

}  // namespace bulkhead::admission
