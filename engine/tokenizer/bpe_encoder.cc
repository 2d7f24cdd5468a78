#include "engine/tokenizer/bpe_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>

#include "engine/tokenizer/byte_alphabet.h"
#include "engine/tokenizer/utf8.h"

namespace bulkhead::engine {
namespace {

// Up to here looking through all pairs for each merge is faster than a heap.
constexpr size_t kShortWord = 32;
constexpr uint32_t kNoRank = 0xffffffff;

struct Symbol {
  uint32_t symbol;  // kGone once merged into its left neighbour
  int32_t left;
  int32_t right;
};
constexpr uint32_t kGone = 0xffffffff;

struct Pair {
  uint32_t rank;
  int32_t left;
  int32_t right;
  uint32_t left_symbol;
  uint32_t right_symbol;
  uint32_t result;
};

struct GoesLater {
  bool operator()(const Pair& a, const Pair& b) const { return a.rank != b.rank ? a.rank > b.rank : a.left > b.left; }
};

using PairQueue = std::priority_queue<Pair, std::vector<Pair>, GoesLater>;

void PushPair(const MergeTable& merges, const std::vector<Symbol>& symbols, int32_t left, PairQueue& queue) {
  if (left < 0 || symbols[static_cast<size_t>(left)].right < 0) return;
  const Symbol& l = symbols[static_cast<size_t>(left)];
  const Symbol& r = symbols[static_cast<size_t>(l.right)];
  const std::optional<Merge> merge = merges.Find(l.symbol, r.symbol);
  if (merge.has_value()) queue.push({merge->rank, left, l.right, l.symbol, r.symbol, merge->result});
}

}  // namespace

absl::StatusOr<std::unique_ptr<BpeEncoder>> BpeEncoder::Create(const GgufFile& file, const Vocabulary& vocabulary,
                                                               PreTokenizer pre_tokenizer) {
  constexpr std::string_view kKey = "tokenizer.ggml.merges";
  const GgufValue* value = file.Find(kKey);
  if (value == nullptr) return Error(Reason::kModelInvalid, fmt::format("key {}: missing", kKey));
  const std::optional<GgufStrings> strings = value->AsStrings();
  if (!strings.has_value()) {
    return Error(Reason::kModelInvalid, fmt::format("key {}: not an array of strings", kKey));
  }
  ASSIGN_OR_RETURN(MergeTable merges, MergeTable::Create(*strings, vocabulary));
  return std::unique_ptr<BpeEncoder>(new BpeEncoder(vocabulary, pre_tokenizer, std::move(merges)));
}

BpeEncoder::BpeEncoder(const Vocabulary& vocabulary, PreTokenizer pre_tokenizer, MergeTable merges)
    : vocabulary_(vocabulary), pre_tokenizer_(pre_tokenizer), merges_(std::move(merges)) {
  for (uint32_t byte = 0; byte < 256; ++byte) letters_[byte] = merges_.Intern(ByteLetter(static_cast<uint8_t>(byte)));
}

void BpeEncoder::Encode(std::string_view text, bool /*after_special*/, std::vector<int32_t>& ids) const {
  while (!text.empty()) {
    const std::string_view word = text.substr(0, NextWord(pre_tokenizer_, text));
    text.remove_prefix(word.size());
    if (pre_tokenizer_ == PreTokenizer::kLlama3 && EncodeWhole(word, ids)) continue;
    if (word.size() <= kShortWord) {
      EncodeShort(word, ids);
    } else {
      EncodeLong(word, ids);
    }
  }
}

bool BpeEncoder::EncodeWhole(std::string_view word, std::vector<int32_t>& ids) const {
  if (word.size() > vocabulary_.longest_piece()) return false;
  std::string piece;
  for (const char c : word) piece.append(ByteLetter(static_cast<uint8_t>(c)));
  const std::optional<int32_t> id = vocabulary_.Find(piece);
  if (id.has_value()) ids.push_back(*id);
  return id.has_value();
}

void BpeEncoder::EncodeShort(std::string_view word, std::vector<int32_t>& ids) const {
  std::array<uint32_t, kShortWord> symbols;
  std::array<Merge, kShortWord> pairs;  // of symbol i and i + 1
  size_t count = word.size();
  for (size_t i = 0; i < count; ++i) symbols[i] = letters_[static_cast<uint8_t>(word[i])];
  const auto look_up = [&](size_t i) {
    pairs[i] = merges_.Find(symbols[i], symbols[i + 1]).value_or(Merge{kNoRank, 0});
  };
  for (size_t i = 0; i + 1 < count; ++i) look_up(i);
  while (count > 1) {
    const auto* best = std::min_element(pairs.begin(), pairs.begin() + count - 1,
                                        [](const Merge& a, const Merge& b) { return a.rank < b.rank; });
    if (best->rank == kNoRank) break;
    const auto at = static_cast<size_t>(best - pairs.begin());
    symbols[at] = best->result;
    std::copy(symbols.begin() + at + 2, symbols.begin() + count, symbols.begin() + at + 1);
    std::copy(pairs.begin() + at + 1, pairs.begin() + count - 1, pairs.begin() + at);
    --count;
    if (at > 0) look_up(at - 1);
    if (at + 1 < count) look_up(at);
  }
  for (size_t i = 0; i < count; ++i) Emit(symbols[i], ids);
}

void BpeEncoder::EncodeLong(std::string_view word, std::vector<int32_t>& ids) const {
  std::vector<Symbol> symbols(word.size());
  for (size_t i = 0; i < word.size(); ++i) {
    const auto at = static_cast<int32_t>(i);
    symbols[i] = {letters_[static_cast<uint8_t>(word[i])], at - 1, i + 1 < word.size() ? at + 1 : -1};
  }
  PairQueue queue;
  for (size_t i = 0; i + 1 < word.size(); ++i) PushPair(merges_, symbols, static_cast<int32_t>(i), queue);
  while (!queue.empty()) {
    const Pair pair = queue.top();
    queue.pop();
    Symbol& left = symbols[static_cast<size_t>(pair.left)];
    Symbol& right = symbols[static_cast<size_t>(pair.right)];
    // A pair one of whose sides has changed since is stale.
    if (left.symbol != pair.left_symbol || right.symbol != pair.right_symbol || left.right != pair.right) continue;
    left.symbol = pair.result;
    left.right = right.right;
    if (right.right >= 0) symbols[static_cast<size_t>(right.right)].left = pair.left;
    right.symbol = kGone;
    PushPair(merges_, symbols, left.left, queue);
    PushPair(merges_, symbols, pair.left, queue);
  }
  for (int32_t at = 0; at >= 0; at = symbols[static_cast<size_t>(at)].right) {
    Emit(symbols[static_cast<size_t>(at)].symbol, ids);
  }
}

// What is no piece comes out letter by letter; letters without a piece are left out, as the reference does.
void BpeEncoder::Emit(uint32_t symbol, std::vector<int32_t>& ids) const {
  if (merges_.IsPiece(symbol)) {
    ids.push_back(static_cast<int32_t>(symbol));
    return;
  }
  const std::string_view text = merges_.TextOf(symbol);
  for (size_t at = 0; at < text.size();) {
    const std::string_view letter = text.substr(at, DecodeCodePoint(text.substr(at)).bytes);
    if (const std::optional<int32_t> id = vocabulary_.Find(letter); id.has_value()) ids.push_back(*id);
    at += letter.size();
  }
}

void BpeEncoder::AppendBytes(int32_t id, std::string& out) const { AppendDecoded(vocabulary_.piece(id), out); }

}  // namespace bulkhead::engine
