// What the tiers' translation units share: their tables' names, and the constants of the project's exp. Plain data
// only, for the reason kernels.h gives.
#pragma once

#include "kernels/kernels.h"

namespace bulkhead::kernels {

extern const KernelTable kReferenceKernels;
extern const KernelTable kAvx2Kernels;    // x86-64 only
extern const KernelTable kAvx512Kernels;  // x86-64 only

// exp(x) = 2^n * e^r with n = round(x * log2 e) and r in +-ln2/2; e^r = 1 + r + r^2 (c2 + c3 r + ... + c6 r^4), a
// minimax fit of ours (relative error 3.1e-9 before rounding). Below kExpLowest it is 0, above kExpHighest infinity.
constexpr float kExpLowest = -86.0f;
constexpr float kExpHighest = 88.72f;
constexpr float kLog2E = 0x1.715476p+0f;
constexpr float kLn2High = 0x1.62ep-1f;  // n times it is exact
constexpr float kLn2Low = 0x1.0bfbe8p-15f;
constexpr float kExp2 = 0x1.fffffcp-2f;
constexpr float kExp3 = 0x1.55549p-3f;
constexpr float kExp4 = 0x1.5558f2p-5f;
constexpr float kExp5 = 0x1.123a22p-7f;
constexpr float kExp6 = 0x1.6a2408p-10f;

constexpr float kRoundMagic = 0x1.8p23f;  // x + it - it rounds x to an integer, ties to even, for |x| < 2^22

constexpr uint32_t kPanelRows = 16;  // rows of weights that the fast tiers unpack together for many tokens
constexpr uint32_t kTileTokens = 8;  // tokens whose activations the panel path widens at once
constexpr size_t kScratchSlack = 4096;

}  // namespace bulkhead::kernels
