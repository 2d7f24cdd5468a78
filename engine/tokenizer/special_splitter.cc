#include "engine/tokenizer/special_splitter.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

namespace bulkhead::engine {
namespace {

// A piece longer than this is no special token anybody writes out.
constexpr size_t kLongestSpecial = 256;

bool IsSpecial(PieceKind kind) {
  return kind == PieceKind::kControl || kind == PieceKind::kUserDefined || kind == PieceKind::kUnknown;
}

bool Overlaps(std::span<const ByteRange> ranges, size_t begin, size_t end) {
  const auto at = std::upper_bound(ranges.begin(), ranges.end(), begin,
                                   [](size_t wanted, const ByteRange& range) { return wanted < range.end; });
  return at != ranges.end() && at->begin < end;
}

}  // namespace

struct SpecialSplitter::Search {
  std::string_view text;
  bool parse_special;
  std::span<const ByteRange> literal;
  std::vector<Fragment> fragments;
  std::vector<Fragment> next;
};

SpecialSplitter::SpecialSplitter(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {
  std::map<size_t, Group, std::greater<>> by_length;
  for (int32_t id = 0; id < static_cast<int32_t>(vocabulary.size()); ++id) {
    const std::string_view piece = vocabulary.piece(id);
    if (piece.empty() || piece.size() > kLongestSpecial || !IsSpecial(vocabulary.kind(id))) continue;
    Group& group = by_length[piece.size()];
    const auto first = static_cast<uint8_t>(piece[0]);
    group.only_first = group.length == 0 || group.only_first == first ? first : -1;
    group.length = piece.size();
    group.first_bytes[first] = true;
  }
  for (const auto& [length, group] : by_length) groups_.push_back(group);
}

void SpecialSplitter::FindOfLength(const Group& group, Search& search) const {
  search.next.clear();
  for (const Fragment& fragment : search.fragments) {
    if (fragment.token >= 0) {
      search.next.push_back(fragment);
      continue;
    }
    size_t text_start = fragment.text.begin;
    size_t at = text_start;
    while (at + group.length <= fragment.text.end) {
      if (group.only_first >= 0) {
        const void* hit = std::memchr(search.text.data() + at, group.only_first, fragment.text.end - at);
        if (hit == nullptr) break;
        at = static_cast<size_t>(static_cast<const char*>(hit) - search.text.data());
        if (at + group.length > fragment.text.end) break;
      } else if (!group.first_bytes[static_cast<uint8_t>(search.text[at])]) {
        ++at;
        continue;
      }
      const std::optional<int32_t> id = vocabulary_.Find(search.text.substr(at, group.length));
      const bool wanted = id.has_value() && (vocabulary_.kind(*id) == PieceKind::kUserDefined ||
                                             (search.parse_special && IsSpecial(vocabulary_.kind(*id)) &&
                                              !Overlaps(search.literal, at, at + group.length)));
      if (!wanted) {
        ++at;
        continue;
      }
      if (at > text_start) search.next.push_back({{text_start, at}, -1});
      search.next.push_back({{at, at + group.length}, *id});
      at += group.length;
      text_start = at;
    }
    if (text_start < fragment.text.end) search.next.push_back({{text_start, fragment.text.end}, -1});
  }
  search.fragments.swap(search.next);
}

std::vector<Fragment> SpecialSplitter::Split(std::string_view text, bool parse_special,
                                             std::span<const ByteRange> literal) const {
  if (text.empty()) return {};
  Search search{text, parse_special, literal, {{{0, text.size()}, -1}}, {}};
  for (const Group& group : groups_) FindOfLength(group, search);
  return std::move(search.fragments);
}

}  // namespace bulkhead::engine
