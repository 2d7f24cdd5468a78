// The memory of KV pages and, for each slot, which pages hold its positions in order. Passive: PlanRuntime decides who
// gets what; Model::Forward reads and writes through it.
//
// Layers here are those that attend, counted among themselves. A page holds kPagePositions positions of one layer: K of
// all KV heads (head by head, position by position), then V.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "engine/model/memory_estimate.h"
#include "engine/model/private_memory.h"

namespace bulkhead::engine {

class KvPool {
 public:
  static absl::StatusOr<KvPool> Map(const ModelConfig& config, const MemoryShape& shape);

  [[nodiscard]] std::byte* Keys(uint32_t layer, uint32_t page) const {
    return memory_.data() + layer * layer_bytes_ + page * page_bytes_;
  }
  [[nodiscard]] std::byte* Values(uint32_t layer, uint32_t page) const { return Keys(layer, page) + page_bytes_ / 2; }
  // Where one position of head 0 stands after a page's pointer.
  [[nodiscard]] size_t OffsetOf(uint32_t position) const {
    return position % kPagePositions * position_stride_ * element_bytes_;
  }
  [[nodiscard]] KvType type() const { return type_; }
  [[nodiscard]] size_t head_stride() const { return position_stride_ * kPagePositions; }  // in elements
  [[nodiscard]] size_t position_stride() const { return position_stride_; }               // in elements
  [[nodiscard]] uint64_t pages() const { return pages_; }
  [[nodiscard]] uint64_t bytes() const { return memory_.size(); }

  // All layers' K and V of one page over those of another.
  void CopyPage(uint32_t from, uint32_t to);

  std::vector<uint32_t>& Table(uint32_t slot) { return tables_[slot]; }
  [[nodiscard]] const std::vector<uint32_t>& Table(uint32_t slot) const { return tables_[slot]; }

 private:
  PrivateMemory memory_;
  KvType type_ = KvType::kF16;
  uint32_t layers_ = 0;
  uint64_t pages_ = 0;
  uint64_t page_bytes_ = 0;   // K and V of one layer
  uint64_t layer_bytes_ = 0;  // all pages of one layer
  size_t position_stride_ = 0;
  size_t element_bytes_ = 0;
  std::vector<std::vector<uint32_t>> tables_;
};

}  // namespace bulkhead::engine
