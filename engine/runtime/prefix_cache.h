// Which KV pages hold which beginnings of sequences: a tree whose edges are pages of tokens. A node is one page, and is
// found by a 128-bit hash chained from its root over all tokens before it; the tokens themselves are then compared, so
// a collision costs a hit and never an answer. A root stands for a salt: nothing is found under another model, adapter
// or tenant.
//
// A node of kPagePositions tokens is found whole; the beginning of any node may be found as well (FindBeginning), whose
// reader then copies the page. For models with recurrent state a node may carry a checkpoint: the state after its last
// token, a snapshot of StatePool.
//
// The cache is one of a page's owners (PageBook). A sequence that owns a node's page owns those of all nodes above, so
// what is idle can be given up from the leaves, least recently used first. Used by one thread, owned by PlanRuntime.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "engine/model/state_pool.h"
#include "engine/runtime/page_book.h"

namespace bulkhead::engine {

// Whose beginnings are whose. Two sequences share pages only where all of it is equal.
struct PrefixSalt {
  std::string model;
  std::string adapter;
  uint64_t tenant = 0;  // uid
  auto operator<=>(const PrefixSalt&) const = default;
};

struct PrefixCacheCounts {
  uint64_t hits = 0;  // sequences that took pages, and those that computed all of theirs
  uint64_t misses = 0;
  uint64_t evictions = 0;     // pages given up for others
  uint64_t saved_tokens = 0;  // positions taken instead of computed
  uint64_t entries = 0;       // nodes now, each a page
  uint64_t checkpoints = 0;   // of them with a state
};

class PrefixCache {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // Both outlive the cache.
  PrefixCache(PageBook* pages, StatePool* states);

  // The root of a salt, made where there is none. Roots without nodes are forgotten, so the number is good until the
  // next eviction.
  uint32_t Root(const PrefixSalt& salt);
  // The same, or kNone where nothing is kept under this salt.
  [[nodiscard]] uint32_t FindRoot(const PrefixSalt& salt) const;
  // The child whose page holds just `tokens`, or kNone.
  [[nodiscard]] uint32_t Find(uint32_t parent, std::span<const int32_t> tokens) const;
  // The child that begins with the most of `tokens`, and how many those are. `whole`: all of the child's.
  struct Beginning {
    uint32_t node = kNone;
    uint32_t tokens = 0;
    bool whole = false;
  };
  // With `whole_with_state` only children that `tokens` cover and that carry a checkpoint count.
  [[nodiscard]] Beginning FindBeginning(uint32_t parent, std::span<const int32_t> tokens, bool whole_with_state) const;

  // Adds `page`, which holds `tokens` (at most a page of them), below `parent`, and owns it from now on. Answers the
  // node that holds them: the new one, one that was there (whose page is another), or kNone where hashes collide.
  uint32_t Insert(uint32_t parent, std::span<const int32_t> tokens, uint32_t page);
  // Keeps the state of `slot` at the node, at the expense of the least recently used checkpoint if need be.
  void Checkpoint(uint32_t node, uint32_t slot);

  [[nodiscard]] uint32_t page(uint32_t node) const { return nodes_[node].page; }
  [[nodiscard]] std::optional<uint32_t> state(uint32_t node) const { return nodes_[node].state; }
  [[nodiscard]] size_t tokens(uint32_t node) const { return nodes_[node].tokens.size(); }

  // Marks the node and all above it as used now.
  void Touch(uint32_t node);
  // Gives up the least recently used idle page; false where none is idle.
  bool EvictOne();

  void CountUse(bool hit) { ++(hit ? counts_.hits : counts_.misses); }
  void CountSaved(uint64_t tokens) { counts_.saved_tokens += tokens; }
  [[nodiscard]] PrefixCacheCounts counts() const;

  // kInternal where tree, order and pages contradict each other.
  [[nodiscard]] absl::Status Check() const;

 private:
  struct Hash {
    uint64_t high = 0;
    uint64_t low = 0;
    bool operator==(const Hash&) const = default;
  };
  struct HashOfHash {
    size_t operator()(const Hash& hash) const { return hash.low; }
  };
  struct Node {
    Hash hash;
    uint32_t parent = kNone;  // kNone: a root, or unused
    uint32_t page = 0;
    std::vector<int32_t> tokens;
    std::vector<uint32_t> children;
    std::optional<uint32_t> state;
    uint32_t newer = kNone;  // order of use; roots stand outside of it
    uint32_t older = kNone;
  };

  static Hash Chain(Hash hash, std::span<const int32_t> tokens);
  uint32_t NewNode();
  void Unlink(uint32_t node);
  void LinkNewest(uint32_t node);
  void Remove(uint32_t node);
  void DropRoot(uint32_t root);
  std::optional<uint32_t> SnapshotFor(uint32_t slot);

  PageBook& pages_;
  StatePool& states_;
  std::vector<Node> nodes_;
  std::vector<uint32_t> unused_;
  std::unordered_map<Hash, uint32_t, HashOfHash> by_hash_;
  std::map<PrefixSalt, uint32_t> roots_;
  uint32_t newest_ = kNone;
  uint32_t oldest_ = kNone;
  PrefixCacheCounts counts_;
};

}  // namespace bulkhead::engine
