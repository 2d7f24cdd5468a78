// Sole owner of KV pages, recurrent state, the forward workspace and capacity; no second manager exists. Sequences are
// leases on slots and pages of it.
//
// A sequence reserves at admission the pages of everything it may ever hold (prompt + max_tokens, at most the
// context), so that an admitted sequence can always finish and decode never waits or grows; the pages themselves are
// taken as positions are written. Used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "engine/model/kv_pool.h"
#include "engine/model/memory_estimate.h"
#include "engine/model/state_pool.h"
#include "engine/model/workspace.h"

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
  uint64_t reserved = 0;  // promised to admitted sequences and not yet taken; part of free
};

class PlanRuntime {
 public:
  // More would be no use to a CPU; it keeps every table small.
  static constexpr uint32_t kMaxSequences = 128;

  // Maps and touches all private memory. kInvalidRequest for impossible numbers, kWorkerOom with a MemoryShortage
  // where memory cannot be had.
  static absl::StatusOr<std::unique_ptr<PlanRuntime>> Create(const ModelConfig& config, const MemoryShape& shape);

  // Asks for a sequence of at most `tokens` positions. Its recurrent state is that of no tokens.
  Admission Admit(uint32_t tokens);
  // Makes positions [0, tokens) of `slot` writable. Within what was admitted it never fails; beyond, kInternal.
  absl::Status Grow(uint32_t slot, uint32_t tokens);
  // Gives slot, pages and the rest of the reservation back. Only between forwards (trap 24).
  void Release(uint32_t slot);

  [[nodiscard]] KvPool& kv() { return kv_; }
  // Of the slots: undone after refused drafts, copied for preemption and the prefix cache.
  [[nodiscard]] StatePool& states() { return states_; }
  [[nodiscard]] Workspace& workspace() { return workspace_; }
  [[nodiscard]] const MemoryShape& shape() const { return shape_; }
  [[nodiscard]] uint64_t private_bytes() const { return kv_.bytes() + states_.bytes() + workspace_.bytes(); }
  [[nodiscard]] PageCounts Pages() const;

 private:
  struct Slot {
    bool used = false;
    uint64_t reserved_pages = 0;  // not yet taken
  };

  PlanRuntime(const MemoryShape& shape, KvPool kv, StatePool states, Workspace workspace);

  MemoryShape shape_;
  KvPool kv_;
  StatePool states_;
  Workspace workspace_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_pages_;  // the next one last
  uint64_t reserved_ = 0;
};

}  // namespace bulkhead::engine
