// Paged attention: the reference's bits for every head size, group, window, page size and cut of the tokens.
#include <gtest/gtest.h>

#include <cmath>

#include "data.h"
#include "kernels/tiers.h"
#include "tiers_under_test.h"

namespace bulkhead::kernels::testing {
namespace {

struct Shape {
  uint32_t head_size = 64;
  uint32_t query_heads = 2;
  uint32_t kv_heads = 2;
  uint32_t page_positions = 32;
  uint32_t window = 0;
  KvType type = KvType::kF16;
};

// K and V of `positions` positions in pages laid out head by head. What lies past the last position is NaN.
class Cache {
 public:
  Cache(Random& random, const Shape& shape, uint32_t positions) : shape_(shape) {
    const uint32_t pages = (positions + shape.page_positions - 1) / shape.page_positions;
    const size_t page_elements = size_t{shape.kv_heads} * shape.page_positions * shape.head_size;
    for (auto* store : {&k_, &v_}) {
      store->assign(pages * page_elements * element(), 0xff);
      for (uint32_t position = 0; position < positions; ++position) {
        for (uint32_t head = 0; head < shape.kv_heads; ++head) {
          const auto values = random.Normals(shape.head_size, 1.0f);
          const size_t at = position / shape.page_positions * page_elements +
                            (size_t{head} * shape.page_positions + position % shape.page_positions) * shape.head_size;
          kReferenceKernels.store_kv(values.data(), shape.head_size, shape.type, store->data() + at * element());
        }
      }
    }
    for (uint32_t page = 0; page < pages; ++page) {
      k_pages_.push_back(k_.data() + page * page_elements * element());
      v_pages_.push_back(v_.data() + page * page_elements * element());
    }
  }

  [[nodiscard]] KvPages pages() const {
    return {.k = k_pages_.data(),
            .v = v_pages_.data(),
            .page_positions = shape_.page_positions,
            .type = shape_.type,
            .head_stride = size_t{shape_.page_positions} * shape_.head_size,
            .position_stride = shape_.head_size};
  }
  [[nodiscard]] std::vector<float> Vector(bool key, uint32_t head, uint32_t position) const {
    const void* page = (key ? k_pages_ : v_pages_)[position / shape_.page_positions];
    const size_t at = (size_t{head} * shape_.page_positions + position % shape_.page_positions) * shape_.head_size;
    std::vector<float> out(shape_.head_size);
    const auto type = shape_.type == KvType::kF32 ? WeightType::kF32 : WeightType::kF16;
    kReferenceKernels.dequantise(type, static_cast<const uint8_t*>(page) + at * element(), shape_.head_size,
                                 out.data());
    return out;
  }

 private:
  [[nodiscard]] size_t element() const { return shape_.type == KvType::kF32 ? 4 : 2; }

  Shape shape_;
  std::vector<uint8_t> k_, v_;
  std::vector<const void*> k_pages_, v_pages_;
};

std::vector<float> Attend(const KernelTable& kernels, const Shape& shape, const Cache& cache,
                          const std::vector<float>& q, uint32_t first, uint32_t tokens, uint32_t tokens_a_call) {
  const size_t stride = size_t{shape.query_heads} * shape.head_size;
  std::vector<float> out(q.size());
  Scratch scratch(AttentionScratchBytes(shape.query_heads, shape.head_size));
  for (uint32_t t = 0; t < tokens; t += tokens_a_call) {
    const AttentionTask task{.kv = cache.pages(),
                             .kv_head = 1,
                             .head_size = shape.head_size,
                             .query_heads = shape.query_heads,
                             .tokens = std::min(tokens_a_call, tokens - t),
                             .first_position = first + t,
                             .window = shape.window,
                             .scale = 0.125f,
                             .q = q.data() + t * stride,
                             .q_stride = stride,
                             .out = out.data() + t * stride,
                             .out_stride = stride};
    kernels.attention(&task, scratch.data());
  }
  return out;
}

class AttentionTest : public TierTest {
 protected:
  void ExpectSame(const Shape& shape, uint32_t first, uint32_t tokens) {
    SCOPED_TRACE("head " + std::to_string(shape.head_size) + " heads " + std::to_string(shape.query_heads) + " page " +
                 std::to_string(shape.page_positions) + " window " + std::to_string(shape.window) + " first " +
                 std::to_string(first) + " tokens " + std::to_string(tokens));
    Random random(first * 31 + tokens);
    const Cache cache(random, shape, first + tokens);
    const auto q = random.Normals(size_t{tokens} * shape.query_heads * shape.head_size, 2.0f);
    const auto expected = Attend(kReferenceKernels, shape, cache, q, first, tokens, 1);
    EXPECT_TRUE(SameBits(expected, Attend(Tier(), shape, cache, q, first, tokens, 1))) << "token by token";
    EXPECT_TRUE(SameBits(expected, Attend(Tier(), shape, cache, q, first, tokens, 3))) << "by threes";
    EXPECT_TRUE(SameBits(expected, Attend(Tier(), shape, cache, q, first, tokens, kAttentionTokens))) << "by eights";
  }
};

TEST_P(AttentionTest, EveryStartEqualsTheReference) {
  for (KvType type : {KvType::kF16, KvType::kF32}) {
    Shape shape;
    shape.type = type;
    for (uint32_t first : {0, 1, 30, 31, 32, 33, 250, 255, 256, 257, 511, 700}) ExpectSame(shape, first, 11);
  }
}

TEST_P(AttentionTest, EveryShapeEqualsTheReference) {
  for (uint32_t head_size : {16, 48, 80, 128, 256}) {
    for (uint32_t query_heads : {1, 3, 8}) {
      Shape shape;
      shape.head_size = head_size;
      shape.query_heads = query_heads;
      ExpectSame(shape, 60, 9);
    }
  }
}

TEST_P(AttentionTest, PageSizeChangesNothingAgainstTheReference) {
  for (uint32_t page_positions : {32, 64, 96, 256}) {
    Shape shape;
    shape.page_positions = page_positions;
    ExpectSame(shape, 290, 5);
  }
}

TEST_P(AttentionTest, WindowsEqualTheReference) {
  for (uint32_t window : {1, 2, 31, 32, 100, 256, 300, 5000}) {
    Shape shape;
    shape.window = window;
    for (uint32_t first : {0, 28, 250, 600}) ExpectSame(shape, first, 9);
  }
}

INSTANTIATE_TIERS(AttentionTest);

TEST(ReferenceAttentionTest, IsCloseToDoubleArithmetic) {
  Random random(8);
  Shape shape;
  const uint32_t position = 600;
  const Cache cache(random, shape, position + 1);
  const auto q = random.Normals(size_t{shape.query_heads} * shape.head_size, 2.0f);
  const auto out = Attend(kReferenceKernels, shape, cache, q, position, 1, 1);
  for (uint32_t h = 0; h < shape.query_heads; ++h) {
    std::vector<double> value(shape.head_size);
    double sum = 0;
    for (uint32_t j = 0; j <= position; ++j) {
      const auto k = cache.Vector(true, 1, j), v = cache.Vector(false, 1, j);
      double score = 0;
      for (uint32_t d = 0; d < shape.head_size; ++d) score += double{q[h * shape.head_size + d]} * k[d];
      const double weight = std::exp(score * 0.125);
      sum += weight;
      for (uint32_t d = 0; d < shape.head_size; ++d) value[d] += weight * v[d];
    }
    for (uint32_t d = 0; d < shape.head_size; ++d) {
      EXPECT_NEAR(out[h * shape.head_size + d], value[d] / sum, 3e-6);
    }
  }
}

}  // namespace
}  // namespace bulkhead::kernels::testing
