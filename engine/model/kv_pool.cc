#include "engine/model/kv_pool.h"

#include <algorithm>
#include <cstring>

#include "engine/model/model_config.h"

namespace bulkhead::engine {

absl::StatusOr<KvPool> KvPool::Map(const ModelConfig& config, const MemoryShape& shape) {
  ASSIGN_OR_RETURN(const MemoryEstimate estimate, EstimateMemory(config, shape));
  KvPool pool;
  pool.type_ = shape.kv_type;
  pool.layers_ = config.attention_layers();
  pool.pages_ = PoolPages(shape);
  pool.position_stride_ = config.padded_head_size();
  pool.element_bytes_ = shape.kv_type == KvType::kF32 ? sizeof(float) : sizeof(uint16_t);
  pool.layer_bytes_ = estimate.kv_bytes / std::max(config.attention_layers(), 1U);
  pool.page_bytes_ = pool.layer_bytes_ / pool.pages_;
  ASSIGN_OR_RETURN(pool.memory_, PrivateMemory::Map(estimate.kv_bytes, "KV pages"));
  pool.tables_.resize(shape.sequences);
  for (auto& table : pool.tables_) table.reserve((shape.context + kPagePositions - 1) / kPagePositions);
  return pool;
}

void KvPool::CopyPage(uint32_t from, uint32_t to) {
  for (uint32_t layer = 0; layer < layers_; ++layer) std::memcpy(Keys(layer, to), Keys(layer, from), page_bytes_);
}

}  // namespace bulkhead::engine
