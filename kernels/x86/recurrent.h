// The kernels of recurrent layers in Lanes (see vector_math.h).
#pragma once

#include "kernels/x86/vector_math.h"

namespace bulkhead::kernels {
namespace {

inline Lanes LoadUpTo(const float* p, uint32_t count) { return count < kSumLanes ? LoadSome(p, count) : Load(p); }

// Up to 16 channels of one token. Tap k sees the row taps - 1 - k tokens before.
inline Lanes Taps(const ConvTask& task, uint32_t token, uint32_t channel, uint32_t count) {
  Lanes sum = Zero();
  for (uint32_t k = 0; k < task.taps; ++k) {
    const uint32_t row = token + k;  // counted from the first row of `before`
    const float* x =
        row < task.taps - 1 ? task.before + row * task.before_stride : task.x + (row - (task.taps - 1)) * task.x_stride;
    sum = Fma(LoadUpTo(task.weights + k * task.weight_stride + channel, count), LoadUpTo(x + channel, count), sum);
  }
  if (task.bias != nullptr) sum = Add(sum, LoadUpTo(task.bias + channel, count));
  if (!task.silu) return sum;
  return Div(sum, Add(Broadcast(1.0f), Exp(Mul(sum, Broadcast(-1.0f)))));
}

inline void Convolve(const ConvTask* task) {
  for (uint32_t t = 0; t < task->tokens; ++t) {
    float* out = task->out + t * task->out_stride;
    for (uint32_t c = 0; c < task->channels; c += kSumLanes) {
      const uint32_t count = task->channels - c < kSumLanes ? task->channels - c : kSumLanes;
      const Lanes value = Taps(*task, t, c, count);
      if (count < kSumLanes) {
        StoreSome(out + c, value, count);
      } else {
        Store(out + c, value);
      }
    }
  }
}

template <int kRows>
inline void SumRows(const Lanes* sums, float* out) {
  if constexpr (kRows == 4) {
    Sum4(sums, out);
  } else {
    for (int r = 0; r < kRows; ++r) out[r] = Sum(sums[r]);
  }
}

// kRows rows of the state, one token.
template <int kRows>
inline void ScanRows(const ScanTask& task, uint32_t token, uint32_t row, float keep) {
  const float* x = task.x + token * task.x_stride + row;
  const float* b = task.b + token * task.bc_stride;
  const float* c = task.c + token * task.bc_stride;
  const float step = task.step[token * task.step_stride];
  float* state = task.state + size_t{row} * task.columns;
  Lanes sums[kRows];
  for (int r = 0; r < kRows; ++r) sums[r] = Zero();
  for (uint32_t k = 0; k < task.columns; k += kSumLanes) {
    const Lanes in = Load(b + k);
    const Lanes look = Load(c + k);
    for (int r = 0; r < kRows; ++r) {
      float* at = state + size_t{static_cast<uint32_t>(r)} * task.columns + k;
      const Lanes value = Fma(Load(at), Broadcast(keep), Mul(in, Broadcast(x[r] * step)));
      Store(at, value);
      sums[r] = Fma(value, look, sums[r]);
    }
  }
  float seen[kRows];
  SumRows<kRows>(sums, seen);
  float* out = task.out + token * task.out_stride + row;
  for (int r = 0; r < kRows; ++r) out[r] = __builtin_fmaf(task.d, x[r], seen[r]);
}

inline float ExpOf(float x) {
  float lanes[kSumLanes];
  Store(lanes, Exp(Broadcast(x)));
  return lanes[0];
}

inline void Scan(const ScanTask* task) {
  for (uint32_t t = 0; t < task->tokens; ++t) {
    const float keep = ExpOf(task->step[t * task->step_stride] * task->a);
    uint32_t row = 0;
    for (; row + 4 <= task->head; row += 4) ScanRows<4>(*task, t, row, keep);
    for (; row < task->head; ++row) ScanRows<1>(*task, t, row, keep);
  }
}

// kRows rows of the state, one token.
template <int kRows>
inline void DeltaRows(const DeltaTask& task, uint32_t token, uint32_t row) {
  const float* key = task.k + token * task.qk_stride;
  const float* query = task.q + token * task.qk_stride;
  const float* v = task.v + token * task.v_stride + row;
  const Lanes keep = Broadcast(task.keep[token * task.gate_stride]);
  const float beta = task.beta[token * task.gate_stride];
  float* state = task.state + size_t{row} * task.columns;
  Lanes sums[kRows];
  for (int r = 0; r < kRows; ++r) sums[r] = Zero();
  for (uint32_t k = 0; k < task.columns; k += kSumLanes) {
    const Lanes known = Load(key + k);
    for (int r = 0; r < kRows; ++r) {
      float* at = state + size_t{static_cast<uint32_t>(r)} * task.columns + k;
      const Lanes value = Mul(Load(at), keep);
      Store(at, value);
      sums[r] = Fma(value, known, sums[r]);
    }
  }
  float recalled[kRows];
  SumRows<kRows>(sums, recalled);
  Lanes corrections[kRows];
  for (int r = 0; r < kRows; ++r) {
    corrections[r] = Broadcast((v[r] - recalled[r]) * beta);
    sums[r] = Zero();
  }
  for (uint32_t k = 0; k < task.columns; k += kSumLanes) {
    const Lanes known = Load(key + k);
    const Lanes asked = Load(query + k);
    for (int r = 0; r < kRows; ++r) {
      float* at = state + size_t{static_cast<uint32_t>(r)} * task.columns + k;
      const Lanes value = Fma(known, corrections[r], Load(at));
      Store(at, value);
      sums[r] = Fma(value, asked, sums[r]);
    }
  }
  SumRows<kRows>(sums, task.out + token * task.out_stride + row);
}

inline void DeltaScan(const DeltaTask* task) {
  for (uint32_t t = 0; t < task->tokens; ++t) {
    uint32_t row = 0;
    for (; row + 4 <= task->values; row += 4) DeltaRows<4>(*task, t, row);
    for (; row < task->values; ++row) DeltaRows<1>(*task, t, row);
  }
}

}  // namespace
}  // namespace bulkhead::kernels
