// The constants of the canonical arithmetic (docs/numerics.md): one request has one token sequence because every tier,
// batch, chunking and thread count computes the same bits. A change of any rule there raises kNumericsVersion.
#pragma once

#include <cstdint>

#include "base/numerics_version.h"

namespace bulkhead::kernels {

// Carried in Hello and salted into prefix-cache keys: results of different versions must never be mixed.
constexpr uint32_t kNumericsVersion = bulkhead::kNumericsVersion;

constexpr uint32_t kSumLanes = 16;              // a sum over a dimension runs in lanes k mod 16, then +8 +4 +2 +1
constexpr uint32_t kBlockChains = 4;            // block dots accumulate into chain b mod 4
constexpr uint32_t kActivationGroup = 32;       // activations that share one int8 scale (kQ8Group32)
constexpr uint32_t kAttentionBlock = 32;        // positions per step of the online softmax
constexpr uint32_t kAttentionSegment = 256;     // positions per independently computed segment, aligned to position 0
constexpr float kSmallestGroupMax = 0x1p-100f;  // a group whose largest magnitude is below this quantises to zeros

}  // namespace bulkhead::kernels
