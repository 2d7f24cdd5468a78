#include "kernels/kernels.h"
#include "kernels/tiers.h"

namespace bulkhead::kernels {

size_t MatMulScratchBytes(uint32_t cols) {
  const size_t panel = size_t{kPanelRows} * cols * sizeof(int16_t);
  const size_t scales = size_t{kPanelRows} * (cols / 32) * sizeof(float);
  const size_t tokens = size_t{kTileTokens} * cols * sizeof(int16_t);
  return panel + 2 * scales + tokens + kScratchSlack;
}

size_t AttentionScratchBytes(uint32_t query_heads, uint32_t head_size) {
  const size_t queries = size_t{kAttentionTokens} * query_heads;
  const size_t vectors = size_t{kAttentionBlock} * head_size;
  const size_t states = queries * 2 * (head_size + kSumLanes);
  return (vectors + queries * kAttentionBlock + states) * sizeof(float) + kScratchSlack;
}

}  // namespace bulkhead::kernels
