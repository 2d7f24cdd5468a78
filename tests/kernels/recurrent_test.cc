// The kernels of recurrent layers: every tier gives the reference's bits, and a sequence cut anywhere gives the bits of
// the whole.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "data.h"
#include "kernels/compute.h"
#include "kernels/dispatch.h"
#include "kernels/tiers.h"
#include "tiers_under_test.h"

namespace bulkhead::kernels::testing {
namespace {

class RecurrentTest : public TierTest {};

std::vector<float> Joined(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> all = a;
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

std::vector<float> Convolved(const KernelTable& kernels, uint32_t taps, uint32_t channels, uint32_t tokens, bool bias,
                             bool silu) {
  Random random(taps * 1000 + channels + tokens);
  const auto x = random.Values(size_t{tokens} * channels);
  const auto before = random.Values(size_t{taps} * channels);
  const auto weights = random.Normals(size_t{taps} * channels, 0.5F);
  const auto biases = random.Normals(channels, 0.5F);
  std::vector<float> out(size_t{tokens} * channels, -7.0F);
  const ConvTask task{.x = x.data(),
                      .x_stride = channels,
                      .before = before.data(),
                      .before_stride = channels,
                      .weights = weights.data(),
                      .weight_stride = channels,
                      .bias = bias ? biases.data() : nullptr,
                      .silu = silu,
                      .taps = taps,
                      .channels = channels,
                      .tokens = tokens,
                      .out = out.data(),
                      .out_stride = channels};
  kernels.convolve(&task);
  return out;
}

TEST_P(RecurrentTest, ConvolutionEqualsTheReference) {
  for (const uint32_t taps : {2, 3, 4, 7}) {
    for (const uint32_t channels : {1, 15, 16, 40, 256}) {
      for (const uint32_t tokens : {1, 2, 5}) {
        for (const bool flag : {false, true}) {
          EXPECT_TRUE(SameBits(Convolved(kReferenceKernels, taps, channels, tokens, flag, !flag),
                               Convolved(Tier(), taps, channels, tokens, flag, !flag)))
              << taps << " taps, " << channels << " channels, " << tokens << " tokens";
        }
      }
    }
  }
}

// Outputs, then the state.
std::vector<float> Scanned(const KernelTable& kernels, uint32_t head, uint32_t columns, uint32_t tokens) {
  Random random(head * 100 + columns);
  auto state = random.Normals(size_t{head} * columns, 1.0F);
  const auto x = random.Values(size_t{tokens} * head);
  const auto bc = random.Normals(size_t{tokens} * 2 * columns, 1.0F);
  std::vector<float> step(tokens), out(size_t{tokens} * head);
  for (float& value : step) value = std::fabs(random.Normal());
  const ScanTask task{.state = state.data(),
                      .head = head,
                      .columns = columns,
                      .tokens = tokens,
                      .x = x.data(),
                      .x_stride = head,
                      .b = bc.data(),
                      .c = bc.data() + columns,
                      .bc_stride = size_t{2} * columns,
                      .step = step.data(),
                      .step_stride = 1,
                      .a = -0.7F,
                      .d = 0.3F,
                      .out = out.data(),
                      .out_stride = head};
  kernels.scan(&task);
  return Joined(out, state);
}

TEST_P(RecurrentTest, ScanEqualsTheReference) {
  for (const uint32_t head : {1, 3, 4, 16, 61}) {
    for (const uint32_t columns : {16, 32, 128}) {
      EXPECT_TRUE(SameBits(Scanned(kReferenceKernels, head, columns, 9), Scanned(Tier(), head, columns, 9)))
          << head << " rows of " << columns;
    }
  }
}

std::vector<float> DeltaScanned(const KernelTable& kernels, uint32_t values, uint32_t columns, uint32_t tokens) {
  Random random(values * 100 + columns);
  auto state = random.Normals(size_t{values} * columns, 1.0F);
  const auto qk = random.Normals(size_t{tokens} * 2 * columns, 0.3F);
  const auto v = random.Values(size_t{tokens} * values);
  std::vector<float> gates(size_t{2} * tokens), out(size_t{tokens} * values);
  for (float& gate : gates) gate = static_cast<float>(random.Below(1000)) / 1000.0F;
  const DeltaTask task{.state = state.data(),
                       .values = values,
                       .columns = columns,
                       .tokens = tokens,
                       .q = qk.data(),
                       .k = qk.data() + columns,
                       .qk_stride = size_t{2} * columns,
                       .v = v.data(),
                       .v_stride = values,
                       .keep = gates.data(),
                       .beta = gates.data() + 1,
                       .gate_stride = 2,
                       .out = out.data(),
                       .out_stride = values};
  kernels.delta_scan(&task);
  return Joined(out, state);
}

TEST_P(RecurrentTest, DeltaScanEqualsTheReference) {
  for (const uint32_t values : {1, 3, 4, 32, 61}) {
    for (const uint32_t columns : {16, 64, 128}) {
      EXPECT_TRUE(
          SameBits(DeltaScanned(kReferenceKernels, values, columns, 9), DeltaScanned(Tier(), values, columns, 9)))
          << values << " rows of " << columns;
    }
  }
}

INSTANTIATE_TIERS(RecurrentTest);

// Two sequences of `lengths` tokens, each cut into chunks of `chunk`, through convolution and both scans.
class RecurrentComputeTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kTaps = 4, kHeads = 4, kRows = 24, kColumns = 32, kGroups = 2;
  static constexpr uint32_t kInner = kHeads * kRows;
  static constexpr uint32_t kChannels = kInner + 2 * kGroups * kColumns;
  static constexpr size_t kConvState = size_t{kTaps - 1} * kChannels;
  static constexpr size_t kState = size_t{kInner} * kColumns;
  static constexpr uint32_t kTokens = 23;

  std::vector<float> Run(uint32_t threads, uint32_t chunk, bool delta) {
    const auto pool = ComputePool::Create({.threads = threads, .scratch_bytes = 4096});
    const Compute compute(*DefaultTier().table, **pool);
    Random random(3);
    const auto x = random.Normals(size_t{kTokens} * kChannels, 1.0F);
    const auto taps = random.Normals(size_t{kTaps} * kChannels, 0.4F);
    auto gates = random.Normals(size_t{kTokens} * 2 * kHeads, 1.0F);
    compute.Sigmoid({gates.data(), size_t{2} * kHeads, kTokens, 2 * kHeads});
    std::vector<float> decay(kHeads, -0.5F), skip(kHeads, 0.2F);
    std::vector<float> before(kConvState + kState), after(kConvState + kState), out(size_t{kTokens} * kInner);
    for (uint32_t first = 0; first < kTokens; first += chunk) {
      const uint32_t count = std::min(chunk, kTokens - first);
      std::vector<float> convolved(size_t{count} * kChannels);
      const StateSpan conv{before.data(), after.data(), 0, count};
      const StateSpan scan{before.data() + kConvState, after.data() + kConvState, 0, count};
      const Rows rows{convolved.data(), kChannels, count, kChannels};
      compute.Convolve({taps.data(), nullptr, kTaps, kChannels, true}, {&conv, 1},
                       {x.data() + size_t{first} * kChannels, kChannels, count, kChannels}, rows);
      const ConstRows mixed{convolved.data(), kChannels, count, kInner};
      const ConstRows b{convolved.data() + kInner, kChannels, count, kGroups * kColumns};
      const ConstRows c{b.data + kGroups * kColumns, kChannels, count, kGroups * kColumns};
      const ConstRows step{gates.data() + size_t{first} * 2 * kHeads, size_t{2} * kHeads, count, kHeads};
      const ConstRows beta{step.data + kHeads, step.stride, count, kHeads};
      const Rows result{out.data() + size_t{first} * kInner, kInner, count, kInner};
      const ScanShape shape{kHeads, kRows, kColumns, kGroups, delta};
      if (delta) {
        compute.DeltaScan(shape, {&scan, 1}, b, c, mixed, step, beta, result);
      } else {
        compute.Scan(shape, {&scan, 1}, mixed, b, c, step, decay.data(), skip.data(), result);
      }
      before = after;
    }
    return Joined(out, before);
  }
};

TEST_F(RecurrentComputeTest, ChunksAndThreadsChangeNothing) {
  for (const bool delta : {false, true}) {
    const auto whole = Run(1, kTokens, delta);
    for (const uint32_t chunk : {1, 2, 3, 5, 16}) EXPECT_TRUE(SameBits(whole, Run(2, chunk, delta))) << chunk;
  }
}

TEST_F(RecurrentComputeTest, SoftplusIsCloseToDoubleArithmetic) {
  const auto pool = ComputePool::Create({.threads = 1, .scratch_bytes = 4096});
  const Compute compute(*DefaultTier().table, **pool);
  for (float x = -80.0F; x < 40.0F; x += 0.037F) {
    float value = x - 0.5F;
    const float bias = 0.5F;
    compute.Softplus({&value, 1, 1, 1}, &bias);
    const double exact = std::log1p(std::exp(static_cast<double>(x - 0.5F + 0.5F)));
    EXPECT_NEAR(value, exact, exact * 3e-7) << x;
  }
}

}  // namespace
}  // namespace bulkhead::kernels::testing
