// Paged attention in Lanes (see vector_math.h). K, then V, of one 32-position block at a time is turned into floats
// that stay in the first-level cache and serve every query of the task: all tokens and all heads of the KV head's
// group.
#pragma once

#include "kernels/x86/vector_math.h"

namespace bulkhead::kernels {
namespace {

// A query's running softmax, in scratch: the header below, then head_size values.
struct AttentionState {
  float* max;
  float* sum;
  float* keep;  // what the values so far shrink by in the current block
  float* value;
};

struct Query {
  const float* q;
  float* out;
  uint32_t first;  // positions [first, end) are attended to
  uint32_t end;
};

struct AttentionScratch {
  float* vectors;  // [kAttentionBlock][head_size]
  float* scores;   // [queries][kAttentionBlock]
  float* states;   // [queries][2][head_size + kSumLanes]
};

constexpr float kNothing = -__builtin_inff();

inline AttentionState StateOf(const AttentionTask& task, const AttentionScratch& scratch, uint32_t query, int which) {
  float* state = scratch.states + (size_t{query} * 2 + which) * (task.head_size + kSumLanes);
  return {state + task.head_size, state + task.head_size + 1, state + task.head_size + 2, state};
}

inline Query QueryAt(const AttentionTask& task, uint32_t index) {
  const uint32_t token = index / task.query_heads;
  const size_t head = size_t{index % task.query_heads} * task.head_size;
  const uint32_t end = task.first_position + token + 1;
  return {task.q + token * task.q_stride + head, task.out + token * task.out_stride + head,
          task.window != 0 && end > task.window ? end - task.window : 0, end};
}

inline void ResetState(const AttentionState& state, uint32_t head_size) {
  *state.max = kNothing;
  *state.sum = 0.0f;
  for (uint32_t d = 0; d < head_size; d += kSumLanes) Store(state.value + d, Zero());
}

// Positions [from, to) of one block as floats, at their place in the block. A block never crosses a page.
inline void LoadVectors(const AttentionTask& task, const void* const* pages, uint32_t from, uint32_t to, float* out) {
  const void* page = pages[from / task.kv.page_positions];
  for (uint32_t j = from; j < to; ++j) {
    const size_t offset = task.kv_head * task.kv.head_stride + j % task.kv.page_positions * task.kv.position_stride;
    float* vector = out + size_t{j % kAttentionBlock} * task.head_size;
    if (task.kv.type == KvType::kF32) {
      const float* source = static_cast<const float*>(page) + offset;
      for (uint32_t d = 0; d < task.head_size; d += kSumLanes) Store(vector + d, Load(source + d));
    } else {
      const uint16_t* source = static_cast<const uint16_t*>(page) + offset;
      for (uint32_t d = 0; d < task.head_size; d += kSumLanes) Store(vector + d, LoadHalf(source + d));
    }
  }
}

inline void Dot4(const float* q, const float* vectors, uint32_t head_size, float* out) {
  Lanes sums[4] = {Zero(), Zero(), Zero(), Zero()};
  for (uint32_t d = 0; d < head_size; d += kSumLanes) {
    const Lanes x = Load(q + d);
    for (uint32_t i = 0; i < 4; ++i) sums[i] = Fma(x, Load(vectors + i * head_size + d), sums[i]);
  }
  Sum4(sums, out);
}

// scores[j] = q . k_j * scale for positions [from, to), minus infinity elsewhere.
inline void ScoreBlock(const AttentionTask& task, const Query& query, uint32_t from, uint32_t to, const float* vectors,
                       float* scores) {
  const uint32_t begin = from % kAttentionBlock;
  const uint32_t end = begin + (to - from);
  for (uint32_t j = 0; j < kAttentionBlock; ++j) scores[j] = kNothing;
  uint32_t j = begin;
  for (; j + 4 <= end; j += 4) Dot4(query.q, vectors + size_t{j} * task.head_size, task.head_size, scores + j);
  for (; j < end; ++j) scores[j] = Dot(query.q, vectors + size_t{j} * task.head_size, task.head_size);
  for (j = begin; j < end; ++j) scores[j] *= task.scale;
}

// Turns the block's scores into weights, and moves the state's maximum, sum and keep on.
inline void WeighBlock(const AttentionState& state, float* scores) {
  const Lanes low = Load(scores);
  const Lanes high = Load(scores + kSumLanes);
  const float block_max = MaxLane(Max(low, high));
  const float max = *state.max > block_max ? *state.max : block_max;
  const Lanes top = Broadcast(max);
  const Lanes low_weights = Exp(Sub(low, top));
  const Lanes high_weights = Exp(Sub(high, top));
  Store(scores, low_weights);
  Store(scores + kSumLanes, high_weights);
  float keep[kSumLanes];
  Store(keep, Exp(Broadcast(*state.max - max)));
  *state.sum = __builtin_fmaf(*state.sum, keep[0], Sum(Add(low_weights, high_weights)));
  *state.max = max;
  *state.keep = keep[0];
}

// value = value * keep + sum of weight_j * v_j, in `kWidth` vectors of 16 at a time.
template <int kWidth>
inline void AddValues(const float* weights, uint32_t begin, uint32_t end, const float* vectors, uint32_t head_size,
                      float keep, float* value) {
  Lanes sum[kWidth];
  for (int i = 0; i < kWidth; ++i) sum[i] = Mul(Load(value + i * kSumLanes), Broadcast(keep));
  for (uint32_t j = begin; j < end; ++j) {
    const Lanes weight = Broadcast(weights[j]);
    const float* vector = vectors + size_t{j} * head_size;
    for (int i = 0; i < kWidth; ++i) sum[i] = Fma(weight, Load(vector + i * kSumLanes), sum[i]);
  }
  for (int i = 0; i < kWidth; ++i) Store(value + i * kSumLanes, sum[i]);
}

inline void AddValueBlock(const AttentionTask& task, const float* weights, uint32_t from, uint32_t to,
                          const float* vectors, float keep, float* value) {
  const uint32_t begin = from % kAttentionBlock;
  const uint32_t end = begin + (to - from);
  uint32_t d = 0;
  for (; d + 4 * kSumLanes <= task.head_size; d += 4 * kSumLanes) {
    AddValues<4>(weights, begin, end, vectors + d, task.head_size, keep, value + d);
  }
  for (; d < task.head_size; d += kSumLanes) {
    AddValues<1>(weights, begin, end, vectors + d, task.head_size, keep, value + d);
  }
}

inline uint32_t Larger(uint32_t a, uint32_t b) { return a > b ? a : b; }
inline uint32_t Smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }

// One block for every query: [first, end) is what any of them attends to.
inline void AttendBlock(const AttentionTask& task, const AttentionScratch& scratch, uint32_t block, uint32_t first,
                        uint32_t end) {
  const uint32_t queries = task.tokens * task.query_heads;
  const uint32_t from = Larger(block, first);
  const uint32_t to = Smaller(block + kAttentionBlock, end);
  LoadVectors(task, task.kv.k, from, to, scratch.vectors);
  for (uint32_t i = 0; i < queries; ++i) {
    const Query query = QueryAt(task, i);
    const uint32_t query_from = Larger(block, query.first);
    const uint32_t query_to = Smaller(to, query.end);
    if (query_from >= query_to) continue;
    float* scores = scratch.scores + size_t{i} * kAttentionBlock;
    ScoreBlock(task, query, query_from, query_to, scratch.vectors, scores);
    WeighBlock(StateOf(task, scratch, i, 1), scores);
  }
  LoadVectors(task, task.kv.v, from, to, scratch.vectors);
  for (uint32_t i = 0; i < queries; ++i) {
    const Query query = QueryAt(task, i);
    const uint32_t query_from = Larger(block, query.first);
    const uint32_t query_to = Smaller(to, query.end);
    if (query_from >= query_to) continue;
    const AttentionState state = StateOf(task, scratch, i, 1);
    AddValueBlock(task, scratch.scores + size_t{i} * kAttentionBlock, query_from, query_to, scratch.vectors,
                  *state.keep, state.value);
  }
}

inline float ExpOne(float x) {
  float lanes[kSumLanes];
  Store(lanes, Exp(Broadcast(x)));
  return lanes[0];
}

// Takes what the segment state holds into the total.
inline void MergeSegment(const AttentionState& segment, uint32_t head_size, bool is_first,
                         const AttentionState& total) {
  if (is_first) {
    *total.max = *segment.max;
    *total.sum = *segment.sum;
    for (uint32_t d = 0; d < head_size; d += kSumLanes) Store(total.value + d, Load(segment.value + d));
    return;
  }
  const float max = *total.max > *segment.max ? *total.max : *segment.max;
  const float keep = ExpOne(*total.max - max);
  const float take = ExpOne(*segment.max - max);
  *total.sum = __builtin_fmaf(*segment.sum, take, *total.sum * keep);
  for (uint32_t d = 0; d < head_size; d += kSumLanes) {
    const Lanes kept = Mul(Load(total.value + d), Broadcast(keep));
    Store(total.value + d, Fma(Load(segment.value + d), Broadcast(take), kept));
  }
  *total.max = max;
}

inline void FinishQuery(const Query& query, const AttentionState& total, uint32_t head_size) {
  const Lanes sum = Broadcast(*total.sum);
  for (uint32_t d = 0; d < head_size; d += kSumLanes) Store(query.out + d, Div(Load(total.value + d), sum));
}

inline void Attention(const AttentionTask* task, void* memory) {
  const uint32_t queries = task->tokens * task->query_heads;
  auto* floats = static_cast<float*>(memory);
  AttentionScratch scratch;
  scratch.vectors = floats;
  scratch.scores = scratch.vectors + size_t{kAttentionBlock} * task->head_size;
  scratch.states = scratch.scores + size_t{queries} * kAttentionBlock;
  const uint32_t first = QueryAt(*task, 0).first;
  const uint32_t end = task->first_position + task->tokens;
  for (uint32_t segment = first / kAttentionSegment * kAttentionSegment; segment < end; segment += kAttentionSegment) {
    for (uint32_t i = 0; i < queries; ++i) ResetState(StateOf(*task, scratch, i, 1), task->head_size);
    const uint32_t stop = Smaller(segment + kAttentionSegment, end);
    for (uint32_t block = segment; block < stop; block += kAttentionBlock) {
      if (block + kAttentionBlock > first) AttendBlock(*task, scratch, block, first, end);
    }
    for (uint32_t i = 0; i < queries; ++i) {
      const Query query = QueryAt(*task, i);
      if (query.end <= segment || query.first >= segment + kAttentionSegment) continue;
      MergeSegment(StateOf(*task, scratch, i, 1), task->head_size, segment <= query.first,
                   StateOf(*task, scratch, i, 0));
    }
  }
  for (uint32_t i = 0; i < queries; ++i) {
    FinishQuery(QueryAt(*task, i), StateOf(*task, scratch, i, 0), task->head_size);
  }
}

}  // namespace
}  // namespace bulkhead::kernels
