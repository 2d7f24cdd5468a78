#include "engine/tokenizer/merge_table.h"

#include <fmt/format.h>

#include <bit>

namespace bulkhead::engine {
namespace {

constexpr uint64_t kMaxMerges = 1 << 22;
// Real vocabularies have none, or a handful; each costs an allocation.
constexpr size_t kMaxExtras = 1 << 16;
constexpr uint32_t kBatchMerges = 128;

uint64_t MergeSlots(uint64_t count) { return std::bit_ceil(count + count / 3 + 1); }

}  // namespace

MergeTable::MergeTable(const Vocabulary& vocabulary, uint64_t count)
    : vocabulary_(&vocabulary), slots_(MergeSlots(count)), mask_(slots_.size() - 1), first_extra_(vocabulary.size()) {}

struct MergeTable::Batch {
  std::vector<std::string_view> texts;  // left and right of each merge in turn
  std::vector<int32_t> ids;             // of texts; -1 = no piece
  std::vector<uint32_t> symbols;
};

absl::StatusOr<MergeTable> MergeTable::Create(const GgufStrings& merges, const Vocabulary& vocabulary) {
  if (merges.size() > kMaxMerges) {
    return Error(Reason::kModelInvalid, fmt::format("tokenizer.ggml.merges: {} exceeds {}", merges.size(), kMaxMerges));
  }
  MergeTable table(vocabulary, merges.size());
  Batch batch;
  std::vector<std::string_view> waiting;
  uint32_t rank = 0;
  for (const std::string_view merge : merges) {
    waiting.push_back(merge);
    if (waiting.size() < kBatchMerges) continue;
    RETURN_IF_ERROR(table.Add(waiting, rank, batch));
    rank += kBatchMerges;
    waiting.clear();
  }
  RETURN_IF_ERROR(table.Add(waiting, rank, batch));
  return table;
}

absl::Status MergeTable::Add(std::span<const std::string_view> merges, uint32_t first_rank, Batch& batch) {
  batch.texts.clear();
  for (size_t i = 0; i < merges.size(); ++i) {
    const std::string_view merge = merges[i];
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size()) {
      return Error(Reason::kModelInvalid, fmt::format("tokenizer.ggml.merges: entry {} \"{}\" is not two texts",
                                                      first_rank + i, Printable(merge)));
    }
    batch.texts.push_back(merge.substr(0, space));
    batch.texts.push_back(merge.substr(space + 1));
  }
  batch.ids.resize(batch.texts.size());
  batch.symbols.resize(batch.texts.size());
  vocabulary_->FindMany(batch.texts, batch.ids);
  for (size_t i = 0; i < batch.texts.size(); ++i) {
    batch.symbols[i] = InternFound(batch.texts[i], batch.ids[i]);
    if (i % 2 == 1) __builtin_prefetch(&slots_[SlotOf(batch.symbols[i - 1], batch.symbols[i])], 1);
  }
  for (size_t i = 0; i < merges.size(); ++i) {
    const uint32_t result = InternJoined(batch.texts[2 * i], batch.texts[2 * i + 1]);
    Insert(batch.symbols[2 * i], batch.symbols[2 * i + 1], {first_rank + static_cast<uint32_t>(i), result});
  }
  if (extra_texts_.size() > kMaxExtras) {
    return Error(Reason::kModelInvalid,
                 fmt::format("tokenizer.ggml.merges: more than {} texts are no pieces", kMaxExtras));
  }
  return absl::OkStatus();
}

void MergeTable::Insert(uint32_t left, uint32_t right, Merge merge) {
  uint64_t at = SlotOf(left, right);
  while (slots_[at].left != kNoSymbol) {
    if (slots_[at].left == left && slots_[at].right == right) return;
    at = (at + 1) & mask_;
  }
  slots_[at] = {left, right, merge};
}

uint32_t MergeTable::Intern(std::string_view text) { return InternFound(text, vocabulary_->Find(text).value_or(-1)); }

uint32_t MergeTable::InternFound(std::string_view text, int32_t id) {
  if (id >= 0) return static_cast<uint32_t>(id);
  const auto [at, added] = extras_.try_emplace(std::string(text), first_extra_ + extra_texts_.size());
  if (added) extra_texts_.emplace_back(text);
  return at->second;
}

uint32_t MergeTable::InternJoined(std::string_view left, std::string_view right) {
  joined_.assign(left);
  joined_.append(right);
  // Vocabularies mostly list what merges make in the order of the merges.
  const uint32_t guess = last_result_ + 1;
  const bool hit = guess < first_extra_ && vocabulary_->piece(static_cast<int32_t>(guess)) == joined_;
  last_result_ = hit ? guess : Intern(joined_);
  return last_result_;
}

uint64_t MergeTable::SlotOf(uint32_t left, uint32_t right) const {
  const uint64_t key = (uint64_t{left} << 32 | right) * 0x9e3779b97f4a7c15;
  return (key ^ key >> 32) & mask_;
}

std::optional<Merge> MergeTable::Find(uint32_t left, uint32_t right) const {
  for (uint64_t at = SlotOf(left, right); slots_[at].left != kNoSymbol; at = (at + 1) & mask_) {
    if (slots_[at].left == left && slots_[at].right == right) return slots_[at].merge;
  }
  return std::nullopt;
}

uint64_t MergeTable::TableBytes(uint64_t count) { return MergeSlots(count) * sizeof(Slot); }

}  // namespace bulkhead::engine
