#include "engine/model/state_pool.h"

#include <algorithm>
#include <utility>

#include "engine/model/model_config.h"

namespace bulkhead::engine {

absl::StatusOr<StatePool> StatePool::Map(const ModelConfig& config, const MemoryShape& shape) {
  StatePool pool;
  pool.floats_ = config.state_floats();
  ASSIGN_OR_RETURN(pool.memory_, PrivateMemory::Map(StateBytes(config, shape), "recurrent state"));
  for (uint32_t slot = 0; slot < shape.sequences; ++slot) {
    pool.slots_.push_back({.current = 2 * slot, .next = 2 * slot + 1, .position = 0, .before = std::nullopt});
  }
  pool.positions_.resize(shape.state_snapshots);
  for (uint32_t snapshot = shape.state_snapshots; snapshot-- > 0;) pool.free_.push_back(snapshot);
  return pool;
}

void StatePool::Reset(uint32_t slot) {
  Slot& state = slots_[slot];
  std::fill_n(Buffer(state.current), floats_, 0.0F);
  state.position = 0;
  state.before.reset();
}

void StatePool::Commit(uint32_t slot, uint32_t tokens) {
  Slot& state = slots_[slot];
  std::swap(state.current, state.next);
  state.before = state.position;
  state.position += tokens;
}

bool StatePool::Undo(uint32_t slot) {
  Slot& state = slots_[slot];
  if (!state.before) return false;
  std::swap(state.current, state.next);
  state.position = *state.before;
  state.before.reset();
  return true;
}

std::optional<uint32_t> StatePool::Take(uint32_t slot) {
  if (free_.empty()) return std::nullopt;
  const uint32_t snapshot = free_.back();
  free_.pop_back();
  const Slot& state = slots_[slot];
  positions_[snapshot] = state.position;
  std::copy_n(Buffer(state.current), floats_, Buffer(static_cast<uint32_t>(2 * slots_.size()) + snapshot));
  return snapshot;
}

void StatePool::Restore(uint32_t slot, uint32_t snapshot) {
  Slot& state = slots_[slot];
  std::copy_n(Buffer(static_cast<uint32_t>(2 * slots_.size()) + snapshot), floats_, Buffer(state.current));
  state.position = positions_[snapshot];
  state.before.reset();
}

void StatePool::Drop(uint32_t snapshot) { free_.push_back(snapshot); }

}  // namespace bulkhead::engine
