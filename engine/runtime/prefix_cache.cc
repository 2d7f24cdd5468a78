#include "engine/runtime/prefix_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace bulkhead::engine {
namespace {

// The finaliser of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

constexpr uint64_t kOddHigh = 0x9e3779b97f4a7c15ULL;
constexpr uint64_t kOddLow = 0xd1342543de82ef95ULL;

uint32_t Common(std::span<const int32_t> a, std::span<const int32_t> b) {
  const size_t most = std::min(a.size(), b.size());
  return static_cast<uint32_t>(std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(most), b.begin()).first -
                               a.begin());
}

}  // namespace

PrefixCache::PrefixCache(PageBook* pages, StatePool* states) : pages_(*pages), states_(*states) {}

// Two independent lanes, each a chain over (tokens, count).
PrefixCache::Hash PrefixCache::Chain(Hash hash, std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) {
    const auto word = static_cast<uint32_t>(token);
    hash.high = Mix(hash.high + kOddHigh + word);
    hash.low = Mix((hash.low ^ word) * kOddLow + 1);
  }
  hash.high = Mix(hash.high ^ tokens.size());
  hash.low = Mix(hash.low + tokens.size());
  return hash;
}

uint32_t PrefixCache::NewNode() {
  if (unused_.empty()) {
    nodes_.emplace_back();
    return static_cast<uint32_t>(nodes_.size() - 1);
  }
  const uint32_t node = unused_.back();
  unused_.pop_back();
  return node;
}

uint32_t PrefixCache::Root(const PrefixSalt& salt) {
  const auto [entry, added] = roots_.try_emplace(salt, kNone);
  if (!added) return entry->second;
  Hash hash;
  for (const std::string* part : {&salt.model, &salt.adapter}) {
    const std::vector<int32_t> letters(part->begin(), part->end());
    hash = Chain(hash, letters);
  }
  const std::array<int32_t, 2> tenant = {static_cast<int32_t>(salt.tenant), static_cast<int32_t>(salt.tenant >> 32)};
  entry->second = NewNode();
  nodes_[entry->second].hash = Chain(hash, tenant);
  return entry->second;
}

uint32_t PrefixCache::FindRoot(const PrefixSalt& salt) const {
  const auto found = roots_.find(salt);
  return found == roots_.end() ? kNone : found->second;
}

uint32_t PrefixCache::Find(uint32_t parent, std::span<const int32_t> tokens) const {
  const auto found = by_hash_.find(Chain(nodes_[parent].hash, tokens));
  if (found == by_hash_.end()) return kNone;
  const Node& node = nodes_[found->second];
  return node.parent == parent && std::ranges::equal(node.tokens, tokens) ? found->second : kNone;
}

PrefixCache::Beginning PrefixCache::FindBeginning(uint32_t parent, std::span<const int32_t> tokens,
                                                  bool whole_with_state) const {
  Beginning best;
  for (const uint32_t child : nodes_[parent].children) {
    const Node& node = nodes_[child];
    const uint32_t common = Common(node.tokens, tokens);
    const bool whole = common == node.tokens.size();
    if (whole_with_state && !(whole && node.state)) continue;
    if (common > best.tokens) best = {child, common, whole};
  }
  return best;
}

uint32_t PrefixCache::Insert(uint32_t parent, std::span<const int32_t> tokens, uint32_t page) {
  const Hash hash = Chain(nodes_[parent].hash, tokens);
  const auto [entry, added] = by_hash_.try_emplace(hash, kNone);
  if (!added) {
    const uint32_t there = Find(parent, tokens);
    if (there != kNone) Touch(there);
    return there;
  }
  const uint32_t id = NewNode();
  entry->second = id;
  Node& node = nodes_[id];
  node.hash = hash;
  node.parent = parent;
  node.page = page;
  node.tokens.assign(tokens.begin(), tokens.end());
  nodes_[parent].children.push_back(id);
  pages_.Cache(page);
  ++counts_.entries;
  LinkNewest(id);
  Touch(id);
  return id;
}

void PrefixCache::Checkpoint(uint32_t node, uint32_t slot) {
  if (nodes_[node].state) return;
  nodes_[node].state = SnapshotFor(slot);
  if (nodes_[node].state) ++counts_.checkpoints;
}

std::optional<uint32_t> PrefixCache::SnapshotFor(uint32_t slot) {
  if (const auto taken = states_.Take(slot)) return taken;
  for (uint32_t node = oldest_; node != kNone; node = nodes_[node].newer) {
    if (!nodes_[node].state) continue;
    states_.Drop(*nodes_[node].state);
    nodes_[node].state.reset();
    --counts_.checkpoints;
    return states_.Take(slot);
  }
  return std::nullopt;
}

void PrefixCache::Unlink(uint32_t node) {
  const Node& gone = nodes_[node];
  (gone.newer == kNone ? newest_ : nodes_[gone.newer].older) = gone.older;
  (gone.older == kNone ? oldest_ : nodes_[gone.older].newer) = gone.newer;
}

void PrefixCache::LinkNewest(uint32_t node) {
  nodes_[node].newer = kNone;
  nodes_[node].older = newest_;
  (newest_ == kNone ? oldest_ : nodes_[newest_].newer) = node;
  newest_ = node;
}

// Upwards, so that a node is always newer than those below it, and the oldest one is a leaf.
void PrefixCache::Touch(uint32_t node) {
  for (; nodes_[node].parent != kNone; node = nodes_[node].parent) {
    Unlink(node);
    LinkNewest(node);
  }
}

bool PrefixCache::EvictOne() {
  uint32_t node = oldest_;
  while (node != kNone && !pages_.idle(nodes_[node].page)) node = nodes_[node].newer;
  if (node == kNone) return false;
  ++counts_.evictions;
  Remove(node);
  return true;
}

void PrefixCache::Remove(uint32_t node) {
  Node& gone = nodes_[node];
  const uint32_t parent = gone.parent;
  Unlink(node);
  pages_.Uncache(gone.page);
  if (gone.state) {
    states_.Drop(*gone.state);
    --counts_.checkpoints;
  }
  by_hash_.erase(gone.hash);
  std::erase(nodes_[parent].children, node);
  gone = Node();
  unused_.push_back(node);
  --counts_.entries;
  if (nodes_[parent].parent == kNone && nodes_[parent].children.empty()) DropRoot(parent);
}

void PrefixCache::DropRoot(uint32_t root) {
  std::erase_if(roots_, [root](const auto& entry) { return entry.second == root; });
  nodes_[root] = Node();
  unused_.push_back(root);
}

PrefixCacheCounts PrefixCache::counts() const { return counts_; }

absl::Status PrefixCache::Check() const {
  const auto wrong = [](uint32_t node, std::string_view what) {
    return Error(Reason::kInternal, fmt::format("prefix cache node {}: {}", node, what));
  };
  std::vector<bool> seen(nodes_.size());  // by age: what is below was met before
  uint64_t entries = 0;
  for (uint32_t id = oldest_; id != kNone; id = nodes_[id].newer) {
    const Node& node = nodes_[id];
    if (seen[id] || ++entries > counts_.entries) return wrong(id, "stands twice in the order of use");
    seen[id] = true;
    if (!pages_.cached(node.page)) return wrong(id, fmt::format("page {} is not booked as cached", node.page));
    const auto found = by_hash_.find(node.hash);
    if (found == by_hash_.end() || found->second != id) return wrong(id, "is not found by its hash");
    for (const uint32_t child : node.children) {
      if (!seen[child] || nodes_[child].parent != id) return wrong(id, fmt::format("child {} is newer", child));
      if (pages_.owners(nodes_[child].page) > pages_.owners(node.page)) {
        return wrong(id, fmt::format("page {} has fewer owners than its child's {}", node.page, nodes_[child].page));
      }
    }
  }
  if (entries != counts_.entries || entries != pages_.cached() || entries != by_hash_.size()) {
    return Error(Reason::kInternal, fmt::format("prefix cache: {} nodes in order, {} counted, {} pages, {} hashes",
                                                entries, counts_.entries, pages_.cached(), by_hash_.size()));
  }
  return absl::OkStatus();
}

}  // namespace bulkhead::engine
