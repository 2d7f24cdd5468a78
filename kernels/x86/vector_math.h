// Operations along a row, written in Lanes: each x86 tier includes its lanes_*.h first. Rows that are no multiple of
// 16 end in a vector filled up with zeros, as docs/numerics.md has it.
#pragma once

#include "kernels/tiers.h"

namespace bulkhead::kernels {
namespace {

inline void CopyFloats(float* to, const float* from, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) to[i] = from[i];
}

inline Lanes LoadSome(const float* p, uint32_t count) {
  float lanes[kSumLanes] = {};
  CopyFloats(lanes, p, count);
  return Load(lanes);
}

inline void StoreSome(float* p, Lanes x, uint32_t count) {
  float lanes[kSumLanes];
  Store(lanes, x);
  CopyFloats(p, lanes, count);
}

// out[k] = operation(k's lanes of x and y)
template <typename Operation>
inline void ForEachLane(const float* x, const float* y, uint32_t count, float* out, const Operation& operation) {
  uint32_t k = 0;
  for (; k + kSumLanes <= count; k += kSumLanes) Store(out + k, operation(Load(x + k), Load(y + k)));
  if (k < count) StoreSome(out + k, operation(LoadSome(x + k, count - k), LoadSome(y + k, count - k)), count - k);
}

inline float Dot(const float* x, const float* y, uint32_t count) {
  Lanes sum = Zero();
  uint32_t k = 0;
  for (; k + kSumLanes <= count; k += kSumLanes) sum = Fma(Load(x + k), Load(y + k), sum);
  if (k < count) sum = Fma(LoadSome(x + k, count - k), LoadSome(y + k, count - k), sum);
  return Sum(sum);
}

inline void RmsNorm(const float* x, const float* weight, float epsilon, uint32_t count, float* out) {
  const float mean = Dot(x, x, count) / static_cast<float>(count);
  const Lanes scale = Broadcast(1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean + epsilon))));
  if (weight == nullptr) {
    ForEachLane(x, x, count, out, [scale](Lanes a, Lanes) { return Mul(a, scale); });
  } else {
    ForEachLane(x, weight, count, out, [scale](Lanes a, Lanes w) { return Mul(Mul(a, scale), w); });
  }
}

inline void SiluMul(const float* gate, const float* up, uint32_t count, float* out) {
  ForEachLane(gate, up, count, out,
              [](Lanes g, Lanes u) { return Mul(Div(g, Add(Broadcast(1.0f), Exp(Mul(g, Broadcast(-1.0f))))), u); });
}

inline void AddScaled(const float* y, float scale, uint32_t count, float* x) {
  ForEachLane(y, x, count, x, [scale](Lanes a, Lanes b) { return Fma(Broadcast(scale), a, b); });
}

inline void ExpRow(const float* x, uint32_t count, float* out) {
  ForEachLane(x, x, count, out, [](Lanes a, Lanes) { return Exp(a); });
}

inline void Softmax(const float* x, float scale, uint32_t count, float* out) {
  float max = x[0];
  uint32_t k = 0;
  if (count >= kSumLanes) {
    Lanes maxima = Load(x);
    for (k = kSumLanes; k + kSumLanes <= count; k += kSumLanes) maxima = Max(maxima, Load(x + k));
    max = MaxLane(maxima);
  }
  for (; k < count; ++k) max = max > x[k] ? max : x[k];
  const Lanes top = Broadcast(max);
  ForEachLane(x, x, count, out, [top, scale](Lanes a, Lanes) { return Exp(Mul(Broadcast(scale), Sub(a, top))); });
  Lanes lanes = Zero();
  for (k = 0; k + kSumLanes <= count; k += kSumLanes) lanes = Add(lanes, Load(out + k));
  if (k < count) lanes = Add(lanes, LoadSome(out + k, count - k));
  const Lanes sum = Broadcast(Sum(lanes));
  ForEachLane(out, out, count, out, [sum](Lanes a, Lanes) { return Div(a, sum); });
}

inline void RopeNeox(float* head, uint32_t half, const float* cos_sin) {
  uint32_t i = 0;
  for (; i + kSumLanes <= half; i += kSumLanes) {
    const Lanes a = Load(head + i);
    const Lanes b = Load(head + half + i);
    const Lanes c = Load(cos_sin + i);
    const Lanes s = Load(cos_sin + half + i);
    Store(head + i, Sub(Mul(a, c), Mul(b, s)));
    Store(head + half + i, Add(Mul(a, s), Mul(b, c)));
  }
  for (; i < half; ++i) {
    const float a = head[i];
    const float b = head[half + i];
    head[i] = a * cos_sin[i] - b * cos_sin[half + i];
    head[half + i] = a * cos_sin[half + i] + b * cos_sin[i];
  }
}

inline void RopeNorm(float* head, uint32_t half, const float* cos_sin) {
  for (uint32_t i = 0; i < half; ++i) {
    const float a = head[2 * i];
    const float b = head[2 * i + 1];
    head[2 * i] = a * cos_sin[i] - b * cos_sin[half + i];
    head[2 * i + 1] = a * cos_sin[half + i] + b * cos_sin[i];
  }
}

inline void Rope(float* head, uint32_t rotated, RopePairing pairing, const float* cos_sin) {
  if (pairing == RopePairing::kNeox) {
    RopeNeox(head, rotated / 2, cos_sin);
  } else {
    RopeNorm(head, rotated / 2, cos_sin);
  }
}

inline void StoreKv(const float* x, uint32_t count, KvType type, void* out) {
  if (type == KvType::kF32) {
    CopyFloats(static_cast<float*>(out), x, count);
    return;
  }
  auto* halves = static_cast<uint16_t*>(out);
  uint32_t k = 0;
  for (; k + kSumLanes <= count; k += kSumLanes) StoreHalf(halves + k, Load(x + k));
  if (k == count) return;
  uint16_t last[kSumLanes];
  StoreHalf(last, LoadSome(x + k, count - k));
  for (uint32_t i = k; i < count; ++i) halves[i] = last[i - k];
}

}  // namespace
}  // namespace bulkhead::kernels
