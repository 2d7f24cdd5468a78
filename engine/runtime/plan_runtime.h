// Sole owner of KV pages, recurrent state, the forward workspace and capacity; no second manager exists. Sequences are
// leases on slots and pages of it.
//
// A sequence reserves at admission the pages of everything it may ever hold (prompt + max_tokens, at most the
// context), so that an admitted sequence can always finish and decode never waits or grows; the pages themselves are
// taken as positions are written. Used by one thread, except Pages().
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/model/memory_estimate.h"
#include "engine/runtime/private_memory.h"

namespace bulkhead::engine {

class Model;
class Workspace;

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
  uint64_t free = 0;      // not holding anything
  uint64_t reserved = 0;  // promised to admitted sequences and not yet taken; part of free
};

class PlanRuntime {
 public:
  // Maps and touches all private memory. kWorkerOom with a MemoryShortage where it cannot be had.
  static absl::StatusOr<std::unique_ptr<PlanRuntime>> Create(const Model& model, const MemoryShape& shape);
  ~PlanRuntime();

  // Asks for a sequence of at most `tokens` positions.
  Admission Admit(uint32_t tokens);
  // Makes positions [0, tokens) of `slot` writable; never fails within what was admitted.
  void Grow(uint32_t slot, uint32_t tokens);
  // Gives slot, pages and the rest of the reservation back. Only between forwards (trap 24).
  void Release(uint32_t slot);

  // Pages of `slot` in order of position.
  [[nodiscard]] std::span<const uint32_t> PageTable(uint32_t slot) const;
  // Start of page `page` of `layer`: K of kPagePositions positions and all KV heads, then V; the layout is that of
  // kernels/attention.h.
  [[nodiscard]] std::byte* Page(uint32_t layer, uint32_t page) const;

  [[nodiscard]] Workspace& workspace() const { return *workspace_; }
  [[nodiscard]] const MemoryShape& shape() const { return shape_; }
  [[nodiscard]] uint64_t private_bytes() const { return PrivateBytes(); }
  // Readable from any thread.
  [[nodiscard]] PageCounts Pages() const;

 private:
  struct Slot {
    bool used = false;
    uint32_t reserved_pages = 0;
    std::vector<uint32_t> pages;
  };

  PlanRuntime(const Model& model, const MemoryShape& shape);
  [[nodiscard]] uint64_t PrivateBytes() const;

  MemoryShape shape_;
  uint64_t page_bytes_ = 0;   // of one layer
  uint64_t layer_bytes_ = 0;  // of all pages of one layer
  PrivateMemory kv_;
  std::unique_ptr<Workspace> workspace_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_pages_;
  std::atomic<uint64_t> free_count_{0};
  std::atomic<uint64_t> reserved_count_{0};
  uint64_t total_pages_ = 0;
};

}  // namespace bulkhead::engine
