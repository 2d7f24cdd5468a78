// Sole owner of KV pages, recurrent state, the forward workspace and capacity; no second manager exists. Sequences are
// leases on slots and pages of it.
//
// A sequence is admitted with a reservation: of everything it may ever hold (it can then always finish), or of what it
// holds now, to be extended page by page (Reserve) and, where pages are short, given up and computed again (the
// engine's preemption). The pages themselves are taken as positions are written.
//
// Pages are shared: what a sequence has computed is kept in the prefix cache, and another one that begins alike adopts
// it. A page with several owners is never written: Grow gives the writer a copy. What only the cache holds is idle and
// counts as available; it is evicted as pages are needed. So reserved <= free + idle, always.
//
// Used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/model/kv_pool.h"
#include "engine/model/memory_estimate.h"
#include "engine/model/state_pool.h"
#include "engine/model/workspace.h"
#include "engine/runtime/page_book.h"
#include "engine/runtime/prefix_cache.h"

namespace bulkhead::engine {

// Why a sequence cannot start now. Typed, never parsed out of a text.
enum class Shortage : uint8_t { kSequences, kPages };

struct Admission {
  enum class Verdict : uint8_t { kAdmitted, kDeferred, kNeverFits };
  Verdict verdict = Verdict::kNeverFits;
  Shortage shortage = Shortage::kSequences;  // of kDeferred
  uint32_t slot = 0;                         // of kAdmitted
};

struct PageCounts {
  uint64_t total = 0;
  uint64_t free = 0;      // holding nothing
  uint64_t reserved = 0;  // promised to admitted sequences and not yet taken; part of free and idle
  uint64_t idle = 0;      // held by the prefix cache alone
};

// What the runtime holds at one moment.
struct RuntimeSnapshot {
  PageCounts pages;
  uint32_t sequences = 0;
  uint32_t max_sequences = 0;
  uint64_t free_states = 0;  // snapshots of recurrent state
  PrefixCacheCounts cache;
};

class PlanRuntime {
 public:
  // More would be no use to a CPU; it keeps every table small.
  static constexpr uint32_t kMaxSequences = 128;

  // What a sequence asks for.
  struct Demand {
    uint32_t limit = 0;                // positions it may ever hold
    uint32_t now = 0;                  // of them reserved at once, at most `limit`
    const PrefixSalt* salt = nullptr;  // null: neither takes from the prefix cache nor gives to it
  };

  // Maps and touches all private memory. kInvalidRequest for impossible numbers, kWorkerOom with a MemoryShortage
  // where memory cannot be had.
  static absl::StatusOr<std::unique_ptr<PlanRuntime>> Create(const ModelConfig& config, const MemoryShape& shape);

  // Asks for a sequence. Its recurrent state is that of no tokens.
  Admission Admit(const Demand& demand);
  // The same with all of `tokens` positions reserved, outside of the prefix cache.
  Admission Admit(uint32_t tokens) { return Admit({.limit = tokens, .now = tokens}); }

  // Takes what the cache holds of `tokens` beyond the first `computed`, which stand in whole pages all, and answers how
  // many are computed then; at least one of `tokens` is left. Recurrent models take only up to a checkpoint.
  uint32_t Adopt(uint32_t slot, std::span<const int32_t> tokens, uint32_t computed);

  // Positions from 0 on, in whole pages, that the cache holds of `tokens`, whether their state is there or not.
  [[nodiscard]] uint32_t Cached(uint32_t slot, std::span<const int32_t> tokens) const;

  // Promises pages for positions [0, tokens); false where they are short. Never fails within the reservation.
  bool Reserve(uint32_t slot, uint32_t tokens);
  // Makes positions [from, tokens) of `slot` writable. Within what is reserved it never fails; beyond, kInternal.
  absl::Status Grow(uint32_t slot, uint32_t tokens, uint32_t from = 0);
  // Keeps the whole pages of `computed`, the sequence's tokens whose positions are written, in the cache; with
  // `checkpoint` the recurrent state too, if it stands at the end of the last whole page.
  void Publish(uint32_t slot, std::span<const int32_t> computed, bool checkpoint = false);
  // The same for all of them, the last partial page and the state included; for a sequence that ends.
  void PublishEnd(uint32_t slot, std::span<const int32_t> computed);
  // Gives slot, pages and the rest of the reservation back. Only between forwards (trap 24).
  void Release(uint32_t slot);

  [[nodiscard]] KvPool& kv() { return kv_; }
  // Of the slots: undone after refused drafts.
  [[nodiscard]] StatePool& states() { return states_; }
  [[nodiscard]] Workspace& workspace() { return workspace_; }
  [[nodiscard]] const MemoryShape& shape() const { return shape_; }
  [[nodiscard]] uint64_t private_bytes() const { return kv_.bytes() + states_.bytes() + workspace_.bytes(); }
  [[nodiscard]] PageCounts Pages() const;
  [[nodiscard]] PrefixCacheCounts cache() const { return cache_.counts(); }

  // kInternal where the numbers contradict each other.
  [[nodiscard]] absl::StatusOr<RuntimeSnapshot> Snapshot() const;
  // Every page and every owner, one by one: for tests and for looking into a fault.
  [[nodiscard]] absl::Status Audit() const;

 private:
  struct Slot {
    bool used = false;
    uint64_t reserved_pages = 0;  // not yet taken
    uint32_t limit = 0;           // positions
    std::optional<PrefixSalt> salt = {};
    // Pages of the table, from its start, that are the cache's too, and the node of the last of them.
    uint32_t published = 0;
    uint32_t node = PrefixCache::kNone;
    // The page after those is a beginning that belongs to others: it is copied before anything is written.
    bool borrowed_tail = false;
    bool counted = false;  // as a hit or a miss
  };

  PlanRuntime(const MemoryShape& shape, KvPool kv, StatePool states, Workspace workspace);

  [[nodiscard]] uint64_t available() const { return book_.free() + book_.idle() - reserved_; }
  uint32_t TakeReserved(Slot& slot);
  void TrimToPublished(uint32_t slot);
  // Shares the pages of `path`, then that of `beginning` if it is one; the last node of all.
  uint32_t TakePages(uint32_t slot, const std::vector<uint32_t>& path, uint32_t beginning);
  void CountUse(Slot& slot, bool hit);
  // Node below which this slot's next page goes, or kNone.
  uint32_t Parent(Slot& slot, bool make);
  bool PublishPage(uint32_t slot, std::span<const int32_t> tokens);

  MemoryShape shape_;
  KvPool kv_;
  StatePool states_;
  Workspace workspace_;
  std::vector<Slot> slots_;
  PageBook book_;
  PrefixCache cache_;
  uint64_t reserved_ = 0;
};

}  // namespace bulkhead::engine
