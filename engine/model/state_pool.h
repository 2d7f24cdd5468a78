// The recurrent state of every sequence: what layers that do not attend know of the tokens so far. Passive:
// PlanRuntime decides who has which slot; Model::Forward reads and writes through it.
//
// A slot has two buffers. A forward reads the current one and writes the other, and only when all of it is done do the
// two change places: a forward that is given up leaves the state as it was, and the last one can be undone. Snapshots
// are further buffers, taken and given back by number; a pool may have none.
//
// Used by one thread. Models without recurrent layers have empty pools, on which everything below is allowed.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "engine/model/memory_estimate.h"
#include "engine/model/private_memory.h"

namespace bulkhead::engine {

class StatePool {
 public:
  static absl::StatusOr<StatePool> Map(const ModelConfig& config, const MemoryShape& shape);

  // Whether the model has any state: only then are positions checked.
  [[nodiscard]] bool used() const { return floats_ != 0; }
  [[nodiscard]] uint64_t bytes() const { return memory_.size(); }

  // Tokens that the slot's state covers.
  [[nodiscard]] uint32_t Position(uint32_t slot) const { return slots_[slot].position; }
  // The state of no tokens. Also forgets what Undo would go back to.
  void Reset(uint32_t slot);

  // For Model::Forward: the state before and after it, and the latter put in force with `tokens` more covered.
  [[nodiscard]] const float* Current(uint32_t slot) const { return Buffer(slots_[slot].current); }
  [[nodiscard]] float* Next(uint32_t slot) const { return Buffer(slots_[slot].next); }
  void Commit(uint32_t slot, uint32_t tokens);

  // Goes back to before the last forward: where drafted tokens were refused. Once per forward; false where there is
  // nothing to go back to.
  bool Undo(uint32_t slot);

  // Copies of a slot's state, with its position. Take answers nullopt where all buffers are taken.
  [[nodiscard]] std::optional<uint32_t> Take(uint32_t slot);
  void Restore(uint32_t slot, uint32_t snapshot);
  void Drop(uint32_t snapshot);
  [[nodiscard]] size_t snapshots() const { return positions_.size(); }
  [[nodiscard]] size_t free_snapshots() const { return free_.size(); }

 private:
  struct Slot {
    uint32_t current = 0;  // buffer numbers
    uint32_t next = 0;
    uint32_t position = 0;
    std::optional<uint32_t> before;  // position before the last forward, if Undo may go there
  };

  [[nodiscard]] float* Buffer(uint32_t buffer) const {
    return reinterpret_cast<float*>(memory_.data()) + uint64_t{buffer} * floats_;
  }

  PrivateMemory memory_;
  uint64_t floats_ = 0;  // of one buffer
  std::vector<Slot> slots_;
  std::vector<uint32_t> positions_;  // of snapshots; snapshot s has buffer 2 * slots + s
  std::vector<uint32_t> free_;       // the next one last
};

}  // namespace bulkhead::engine
