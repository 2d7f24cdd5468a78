// The operations on a pool: the same bits with any number of threads, and with several tasks behind one barrier.
#include "kernels/compute.h"

#include <gtest/gtest.h>

#include "data.h"
#include "kernels/dispatch.h"
#include "tiers_under_test.h"

namespace bulkhead::kernels::testing {
namespace {

constexpr uint32_t kTokens = 37, kCols = 256, kRows = 200;

std::unique_ptr<ComputePool> MakePool(uint32_t threads) {
  auto pool = ComputePool::Create({.threads = threads, .scratch_bytes = ThreadScratchBytes(1024, 4, 64)});
  EXPECT_TRUE(pool.ok()) << pool.status();
  return std::move(pool).value();
}

// Several matrices of every kind with one Prepare, then the rest of a layer, all results in one vector.
std::vector<float> RunLayer(uint32_t threads) {
  auto pool = MakePool(threads);
  const Compute compute(*DefaultTier().table, *pool);
  Random random(77);
  std::vector<float> x = random.Values(size_t{kTokens} * kCols);
  std::vector<std::vector<uint8_t>> weights;
  std::vector<float> out;
  Scratch buffer(ActivationBytes(kTokens, kCols));
  const Activations a = compute.Prepare({x.data(), kCols, kTokens, kCols}, true,
                                        {{static_cast<std::byte*>(buffer.data()), ActivationBytes(kTokens, kCols)}});
  constexpr WeightType kTypes[] = {WeightType::kQ8_0, WeightType::kQ4_0, WeightType::kF16};
  out.resize(size_t{3} * kTokens * kRows);
  std::vector<MatMulTask> tasks;
  for (size_t i = 0; i < 3; ++i) {
    weights.push_back(MakeWeights(random, kTypes[i], kRows, kCols));
    tasks.push_back({.weights = {weights[i].data(), RowBytes(kTypes[i], kCols), kRows, kCols, kTypes[i]},
                     .x = a,
                     .out = out.data() + i * kTokens * kRows,
                     .out_stride = kRows});
  }
  compute.MatMul(tasks);

  const Rows rows{x.data(), kCols, kTokens, kCols};
  const ConstRows const_rows{x.data(), kCols, kTokens, kCols};
  const auto norm = random.Normals(64, 1.0f);
  compute.RmsNorm({x.data(), 64, kTokens * 4, 64}, norm.data(), 1e-5f, {x.data(), 64, kTokens * 4, 64});
  const auto table = random.Normals(size_t{kTokens} * 64, 0.6f);
  std::vector<uint32_t> positions(kTokens);
  for (uint32_t t = 0; t < kTokens; ++t) positions[t] = t;
  compute.Rope(rows, 4, 64, {table.data(), positions.data(), 64, RopePairing::kNeox});
  // Two KV heads of 64 in one page of 64 positions; the first half of each row is K, the second V.
  std::vector<uint16_t> k(2 * 64 * 64), v(2 * 64 * 64);
  std::vector<void*> to_k(kTokens), to_v(kTokens);
  for (uint32_t t = 0; t < kTokens; ++t) {
    to_k[t] = k.data() + t * 64;
    to_v[t] = v.data() + t * 64;
  }
  compute.StoreKv({x.data(), kCols, kTokens, 128}, 64, KvType::kF16, 64 * 64, to_k.data());
  compute.StoreKv({x.data() + 128, kCols, kTokens, 128}, 64, KvType::kF16, 64 * 64, to_v.data());
  const void* k_page = k.data();
  const void* v_page = v.data();
  const AttentionSpan span{.kv = {.k = &k_page,
                                  .v = &v_page,
                                  .page_positions = 64,
                                  .type = KvType::kF16,
                                  .head_stride = 64 * 64,
                                  .position_stride = 64},
                           .first_token = 0,
                           .tokens = kTokens,
                           .first_position = 0};
  std::vector<float> attended(size_t{kTokens} * kCols);
  const Rows attended_rows{attended.data(), kCols, kTokens, kCols};
  compute.Attention({.heads = 4, .kv_heads = 2, .head_size = 64, .window = 0, .scale = 0.125f}, std::span(&span, 1),
                    const_rows, attended_rows);
  compute.SiluMul({attended.data(), kCols, kTokens, kCols}, const_rows, attended_rows);
  compute.AddScaled(const_rows, 0.5f, attended_rows);
  out.insert(out.end(), attended.begin(), attended.end());
  const uint32_t ids[] = {0, 199, 7};
  std::vector<float> embedded(size_t{3} * kCols);
  compute.EmbeddingLookup(tasks[0].weights, ids, {embedded.data(), kCols, 3, kCols});
  out.insert(out.end(), embedded.begin(), embedded.end());
  return out;
}

TEST(ComputeTest, ThreadCountsChangeNoBit) {
  const auto alone = RunLayer(1);
  for (uint32_t threads : {2, 3, 5}) EXPECT_TRUE(SameBits(alone, RunLayer(threads))) << threads;
}

}  // namespace
}  // namespace bulkhead::kernels::testing
