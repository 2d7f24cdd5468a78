// The reference tier: the canonical arithmetic of docs/numerics.md in the plainest code that states it, one scalar
// operation after the other. The other tiers are tested against it bit by bit; it runs on any processor.
#include "kernels/tiers.h"

namespace bulkhead::kernels {
namespace {

uint32_t Bits(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
}

float FromBits(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}

uint16_t LoadU16(const void* p) {
  uint16_t x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}

float LoadF32(const void* p) {
  float x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}

float Fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
float Max(float a, float b) { return a > b ? a : b; }

float HalfToFloat(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t exponent = half >> 10 & 31;
  const uint32_t mantissa = half & 1023;
  if (exponent == 0) return FromBits(sign | Bits(static_cast<float>(mantissa) * 0x1p-24f));
  if (exponent == 31) return FromBits(sign | 0x7f800000 | mantissa << 13 | (mantissa != 0 ? 0x400000 : 0));
  return FromBits(sign | (exponent + 112) << 23 | mantissa << 13);
}

// To nearest, ties to even, as vcvtps2ph does it.
uint16_t FloatToHalf(float x) {
  const uint16_t sign = static_cast<uint16_t>(Bits(x) >> 16 & 0x8000);
  const uint32_t bits = Bits(x) & 0x7fffffff;
  if (bits > 0x7f800000) return sign | 0x7e00 | static_cast<uint16_t>(bits >> 13 & 0x1ff);
  if (bits >= 0x47800000) return sign | 0x7c00;  // 65536 and above; what lies between rounds up below
  // Below 2^-14 the half is subnormal: adding 0.5 leaves multiples of 2^-24 in the low bits, rounded by the addition.
  if (bits < 0x38800000) return sign | static_cast<uint16_t>(Bits(FromBits(bits) + 0.5f) - 0x3f000000);
  const uint32_t odd = bits >> 13 & 1;
  return sign | static_cast<uint16_t>((bits - 0x38000000 + 0xfff + odd) >> 13);
}

// Round to nearest even for |x| < 2^22: the addition leaves the integer in the low bits.
int32_t RoundToInt(float x) { return static_cast<int32_t>(Bits(x + 0x1.8p23f)) - 0x4b400000; }

float Exp(float x) {
  if (x < kExpLowest) return 0.0f;
  if (x > kExpHighest) return FromBits(0x7f800000);
  const float shifted = Fma(x, kLog2E, kRoundMagic);
  const float n = shifted - kRoundMagic;
  const float r = Fma(n, -kLn2Low, Fma(n, -kLn2High, x));
  float p = kExp6;
  p = Fma(p, r, kExp5);
  p = Fma(p, r, kExp4);
  p = Fma(p, r, kExp3);
  p = Fma(p, r, kExp2);
  p = Fma(p, r, 1.0f);
  p = Fma(p, r, 1.0f);
  // 2 * 2^(n-1), so that n = 128 does not overflow on the way.
  return p * 2.0f * FromBits((Bits(shifted) - Bits(kRoundMagic) + 126) << 23);
}

// A sum over a dimension: lane k mod 16, then the tree. Where the count is no multiple of 16, zeros fill up.
struct Lanes {
  float lane[kSumLanes] = {};

  void Add(uint32_t k, float x) { lane[k % kSumLanes] += x; }
  void FusedAdd(uint32_t k, float x, float y) { lane[k % kSumLanes] = Fma(x, y, lane[k % kSumLanes]); }
  void Fill(uint32_t k) {
    for (; k % kSumLanes != 0; ++k) Add(k, 0.0f);
  }
  float Sum() const {
    float tree[kSumLanes];
    for (uint32_t i = 0; i < kSumLanes; ++i) tree[i] = lane[i];
    for (uint32_t width = kSumLanes / 2; width > 0; width /= 2) {
      for (uint32_t i = 0; i < width; ++i) tree[i] += tree[i + width];
    }
    return tree[0];
  }
};

float Dot(const float* x, const float* y, uint32_t count) {
  Lanes lanes;
  for (uint32_t k = 0; k < count; ++k) lanes.FusedAdd(k, x[k], y[k]);
  lanes.Fill(count);
  return lanes.Sum();
}

void QuantiseQ8(const float* x, uint32_t cols, int8_t* q8, float* scale, int32_t* sum) {
  for (uint32_t g = 0; g < cols / kActivationGroup; ++g) {
    const float* group = x + g * kActivationGroup;
    uint32_t max_bits = 0;
    for (uint32_t i = 0; i < kActivationGroup; ++i) {
      const uint32_t bits = Bits(group[i]) & 0x7fffffff;
      if (bits > max_bits) max_bits = bits;
    }
    const bool finite = max_bits < 0x7f800000;
    const bool zero = FromBits(max_bits) < kSmallestGroupMax;
    scale[g] = !finite ? FromBits(0x7fc00000) : zero ? 0.0f : FromBits(max_bits) / 127.0f;
    sum[g] = 0;
    for (uint32_t i = 0; i < kActivationGroup; ++i) {
      const int32_t q = !finite || zero ? 0 : RoundToInt(group[i] / scale[g]);
      q8[g * kActivationGroup + i] = static_cast<int8_t>(q);
      sum[g] += q;
    }
  }
}

float WeightAt(WeightType type, const uint8_t* row, uint32_t k) {
  switch (type) {
    case WeightType::kF32:
      return LoadF32(row + size_t{k} * 4);
    case WeightType::kF16:
      return HalfToFloat(LoadU16(row + size_t{k} * 2));
    case WeightType::kBF16:
      return FromBits(uint32_t{LoadU16(row + size_t{k} * 2)} << 16);
    default:
      return 0.0f;
  }
}

bool IsBlockType(WeightType type) {
  return type != WeightType::kF32 && type != WeightType::kF16 && type != WeightType::kBF16;
}

// 32 weights: scale * integer - minimum. Scale and minimum of the types with sub-scales are exact products.
struct Block {
  int32_t q[32];
  float scale;
  float minimum;
};

void UnpackQ4_0(const uint8_t* block, Block& out) {
  for (int i = 0; i < 16; ++i) {
    out.q[i] = (block[2 + i] & 15) - 8;
    out.q[i + 16] = (block[2 + i] >> 4) - 8;
  }
  out.scale = HalfToFloat(LoadU16(block));
}

void UnpackQ5_0(const uint8_t* block, Block& out) {
  for (int i = 0; i < 32; ++i) {
    const int nibble = i < 16 ? block[6 + i] & 15 : block[6 + i - 16] >> 4;
    out.q[i] = (nibble | (block[2 + i / 8] >> i % 8 & 1) << 4) - 16;
  }
  out.scale = HalfToFloat(LoadU16(block));
}

void UnpackQ8_0(const uint8_t* block, Block& out) {
  for (int i = 0; i < 32; ++i) out.q[i] = static_cast<int8_t>(block[2 + i]);
  out.scale = HalfToFloat(LoadU16(block));
}

// Two halves, twelve bytes of 6-bit scales and minimums, 128 bytes of nibbles: each 32 bytes hold two blocks.
void UnpackQ4_K(const uint8_t* super, uint32_t b, Block& out) {
  const uint8_t* packed = super + 4;
  const uint32_t scale = b < 4 ? packed[b] & 63 : (packed[b + 4] & 15) | (packed[b - 4] >> 6) << 4;
  const uint32_t minimum = b < 4 ? packed[b + 4] & 63 : packed[b + 4] >> 4 | (packed[b] >> 6) << 4;
  for (int i = 0; i < 32; ++i) out.q[i] = super[16 + b / 2 * 32 + i] >> b % 2 * 4 & 15;
  out.scale = HalfToFloat(LoadU16(super)) * static_cast<float>(scale);
  out.minimum = HalfToFloat(LoadU16(super + 2)) * static_cast<float>(minimum);
}

// 128 bytes of low nibbles, 64 of high bit pairs, 16 signed scales, a half. The integers include the scale of their 16.
void UnpackQ6_K(const uint8_t* super, uint32_t b, Block& out) {
  const uint8_t* low = super + b / 4 * 64 + b % 2 * 32;
  const uint8_t* high = super + 128 + b / 4 * 32;
  for (int i = 0; i < 32; ++i) {
    const int q = (low[i] >> b % 4 / 2 * 4 & 15) | (high[i] >> b % 4 * 2 & 3) << 4;
    out.q[i] = (q - 32) * static_cast<int8_t>(super[192 + b * 2 + i / 16]);
  }
  out.scale = HalfToFloat(LoadU16(super + 208));
}

Block UnpackBlock(WeightType type, const uint8_t* row, uint32_t b) {
  Block block;
  block.minimum = 0.0f;
  switch (type) {
    case WeightType::kQ4_0:
      UnpackQ4_0(row + size_t{b} * 18, block);
      break;
    case WeightType::kQ5_0:
      UnpackQ5_0(row + size_t{b} * 22, block);
      break;
    case WeightType::kQ4_K:
      UnpackQ4_K(row + size_t{b} / 8 * 144, b % 8, block);
      break;
    case WeightType::kQ6_K:
      UnpackQ6_K(row + size_t{b} / 8 * 210, b % 8, block);
      break;
    default:
      UnpackQ8_0(row + size_t{b} * 34, block);
      break;
  }
  return block;
}

float DotBlocks(WeightType type, const uint8_t* row, const Activations& x, uint32_t token) {
  const uint32_t blocks = x.cols / kActivationGroup;
  float chain[kBlockChains] = {};
  for (uint32_t b = 0; b < blocks; ++b) {
    const Block block = UnpackBlock(type, row, b);
    const int8_t* a = x.q8 + size_t{token} * x.cols + size_t{b} * 32;
    const float scale = x.q8_scale[size_t{token} * blocks + b];
    int32_t dot = 0;
    for (int i = 0; i < 32; ++i) dot += block.q[i] * a[i];
    float& c = chain[b % kBlockChains];
    c = Fma(block.scale * scale, static_cast<float>(dot), c);
    if (type != WeightType::kQ4_K) continue;
    c = Fma(-(block.minimum * scale), static_cast<float>(x.q8_sum[size_t{token} * blocks + b]), c);
  }
  return (chain[0] + chain[1]) + (chain[2] + chain[3]);
}

float DotFloats(WeightType type, const uint8_t* row, const Activations& x, uint32_t token) {
  const float* a = x.f32 + token * x.f32_stride;
  Lanes lanes;
  for (uint32_t k = 0; k < x.cols; ++k) lanes.FusedAdd(k, WeightAt(type, row, k), a[k]);
  lanes.Fill(x.cols);
  return lanes.Sum();
}

void MatMul(const MatMulTask* task, uint32_t row_begin, uint32_t row_end, void* /*scratch*/, size_t /*bytes*/) {
  const WeightMatrix& weights = task->weights;
  for (uint32_t r = row_begin; r < row_end; ++r) {
    const auto* row = static_cast<const uint8_t*>(weights.data) + r * weights.row_bytes;
    for (uint32_t t = 0; t < task->x.tokens; ++t) {
      task->out[t * task->out_stride + r] = IsBlockType(weights.type) ? DotBlocks(weights.type, row, task->x, t)
                                                                      : DotFloats(weights.type, row, task->x, t);
    }
  }
}

void Dequantise(WeightType type, const void* row, uint32_t cols, float* out) {
  const auto* bytes = static_cast<const uint8_t*>(row);
  if (!IsBlockType(type)) {
    for (uint32_t k = 0; k < cols; ++k) out[k] = WeightAt(type, bytes, k);
    return;
  }
  for (uint32_t b = 0; b < cols / 32; ++b) {
    const Block block = UnpackBlock(type, bytes, b);
    for (int i = 0; i < 32; ++i) {
      const float product = block.scale * static_cast<float>(block.q[i]);
      out[b * 32 + i] = type == WeightType::kQ4_K ? product - block.minimum : product;
    }
  }
}

void RmsNorm(const float* x, const float* weight, float epsilon, uint32_t count, float* out) {
  const float mean = Dot(x, x, count) / static_cast<float>(count);
  const float scale = 1.0f / __builtin_sqrtf(mean + epsilon);
  for (uint32_t k = 0; k < count; ++k) {
    const float normed = x[k] * scale;
    out[k] = weight == nullptr ? normed : normed * weight[k];
  }
}

void Rope(float* head, uint32_t rotated, RopePairing pairing, const float* cos_sin) {
  const uint32_t half = rotated / 2;
  for (uint32_t i = 0; i < half; ++i) {
    float& a = head[pairing == RopePairing::kNorm ? 2 * i : i];
    float& b = head[pairing == RopePairing::kNorm ? 2 * i + 1 : i + half];
    const float c = cos_sin[i];
    const float s = cos_sin[half + i];
    const float turned_a = a * c - b * s;
    const float turned_b = a * s + b * c;
    a = turned_a;
    b = turned_b;
  }
}

void SiluMul(const float* gate, const float* up, uint32_t count, float* out) {
  for (uint32_t k = 0; k < count; ++k) out[k] = gate[k] / (1.0f + Exp(-gate[k])) * up[k];
}

void AddScaled(const float* y, float scale, uint32_t count, float* x) {
  for (uint32_t k = 0; k < count; ++k) x[k] = Fma(scale, y[k], x[k]);
}

void ExpRow(const float* x, uint32_t count, float* out) {
  for (uint32_t k = 0; k < count; ++k) out[k] = Exp(x[k]);
}

void Softmax(const float* x, float scale, uint32_t count, float* out) {
  float max = x[0];
  for (uint32_t k = 1; k < count; ++k) max = Max(max, x[k]);
  Lanes lanes;
  for (uint32_t k = 0; k < count; ++k) {
    out[k] = Exp(scale * (x[k] - max));
    lanes.Add(k, out[k]);
  }
  lanes.Fill(count);
  const float sum = lanes.Sum();
  for (uint32_t k = 0; k < count; ++k) out[k] = out[k] / sum;
}

void StoreKv(const float* x, uint32_t count, KvType type, void* out) {
  for (uint32_t k = 0; k < count; ++k) {
    if (type == KvType::kF32) {
      static_cast<float*>(out)[k] = x[k];
    } else {
      static_cast<uint16_t*>(out)[k] = FloatToHalf(x[k]);
    }
  }
}

// The vector of one position, as floats.
void LoadKv(const AttentionTask& task, const void* const* pages, uint32_t position, float* out) {
  const void* page = pages[position / task.kv.page_positions];
  const size_t offset =
      task.kv_head * task.kv.head_stride + position % task.kv.page_positions * task.kv.position_stride;
  for (uint32_t d = 0; d < task.head_size; ++d) {
    out[d] = task.kv.type == KvType::kF32 ? static_cast<const float*>(page)[offset + d]
                                          : HalfToFloat(static_cast<const uint16_t*>(page)[offset + d]);
  }
}

// What the softmax knows after some positions: the largest score, the sum of exp(score - max), the weighted values.
struct SoftmaxState {
  float max = -__builtin_inff();
  float sum = 0.0f;
  float value[kAttentionHeadSizeMax] = {};
};

void AddBlock(const AttentionTask& task, const float* q, uint32_t begin, uint32_t end, SoftmaxState& state) {
  float score[kAttentionBlock];
  float vector[kAttentionHeadSizeMax];
  float max = state.max;
  for (uint32_t j = begin; j < end; ++j) {
    LoadKv(task, task.kv.k, j, vector);
    score[j % kAttentionBlock] = Dot(q, vector, task.head_size) * task.scale;
    max = Max(max, score[j % kAttentionBlock]);
  }
  const float keep = Exp(state.max - max);
  for (uint32_t d = 0; d < task.head_size; ++d) state.value[d] *= keep;
  Lanes lanes;
  for (uint32_t j = begin; j < end; ++j) {
    const float p = Exp(score[j % kAttentionBlock] - max);
    lanes.Add(j, p);
    LoadKv(task, task.kv.v, j, vector);
    for (uint32_t d = 0; d < task.head_size; ++d) state.value[d] = Fma(p, vector[d], state.value[d]);
  }
  state.sum = Fma(state.sum, keep, lanes.Sum());
  state.max = max;
}

void MergeSegment(const SoftmaxState& segment, uint32_t head_size, SoftmaxState& total) {
  const float max = Max(total.max, segment.max);
  const float keep = Exp(total.max - max);
  const float take = Exp(segment.max - max);
  total.sum = Fma(segment.sum, take, total.sum * keep);
  for (uint32_t d = 0; d < head_size; ++d) {
    total.value[d] = Fma(segment.value[d], take, total.value[d] * keep);
  }
  total.max = max;
}

void AttendOne(const AttentionTask& task, const float* q, uint32_t position, float* out) {
  const uint32_t end = position + 1;
  const uint32_t first = task.window != 0 && end > task.window ? end - task.window : 0;
  SoftmaxState total;
  for (uint32_t segment = first - first % kAttentionSegment; segment < end; segment += kAttentionSegment) {
    SoftmaxState state;
    for (uint32_t block = segment; block < segment + kAttentionSegment && block < end; block += kAttentionBlock) {
      const uint32_t from = block < first ? first : block;
      const uint32_t to = block + kAttentionBlock < end ? block + kAttentionBlock : end;
      if (from < to) AddBlock(task, q, from, to, state);
    }
    if (segment <= first) {
      total = state;
    } else {
      MergeSegment(state, task.head_size, total);
    }
  }
  for (uint32_t d = 0; d < task.head_size; ++d) out[d] = total.value[d] / total.sum;
}

void Attention(const AttentionTask* task, void* /*scratch*/) {
  for (uint32_t t = 0; t < task->tokens; ++t) {
    for (uint32_t h = 0; h < task->query_heads; ++h) {
      const size_t head = size_t{h} * task->head_size;
      AttendOne(*task, task->q + t * task->q_stride + head, task->first_position + t,
                task->out + t * task->out_stride + head);
    }
  }
}

void Convolve(const ConvTask* task) {
  for (uint32_t t = 0; t < task->tokens; ++t) {
    for (uint32_t c = 0; c < task->channels; ++c) {
      float sum = 0.0f;
      for (uint32_t k = 0; k < task->taps; ++k) {
        const uint32_t row = t + k;  // counted from the first row of `before`
        const float x = row < task->taps - 1 ? task->before[row * task->before_stride + c]
                                             : task->x[(row - (task->taps - 1)) * task->x_stride + c];
        sum = Fma(task->weights[k * task->weight_stride + c], x, sum);
      }
      if (task->bias != nullptr) sum += task->bias[c];
      task->out[t * task->out_stride + c] = task->silu ? sum / (1.0f + Exp(-sum)) : sum;
    }
  }
}

void Scan(const ScanTask* task) {
  for (uint32_t t = 0; t < task->tokens; ++t) {
    const float step = task->step[t * task->step_stride];
    const float keep = Exp(step * task->a);
    const float* b = task->b + t * task->bc_stride;
    for (uint32_t i = 0; i < task->head; ++i) {
      float* state = task->state + size_t{i} * task->columns;
      const float x = task->x[t * task->x_stride + i];
      const float in = x * step;
      for (uint32_t k = 0; k < task->columns; ++k) state[k] = Fma(state[k], keep, b[k] * in);
      const float seen = Dot(state, task->c + t * task->bc_stride, task->columns);
      task->out[t * task->out_stride + i] = Fma(task->d, x, seen);
    }
  }
}

void DeltaScan(const DeltaTask* task) {
  for (uint32_t t = 0; t < task->tokens; ++t) {
    const float keep = task->keep[t * task->gate_stride];
    const float beta = task->beta[t * task->gate_stride];
    const float* key = task->k + t * task->qk_stride;
    for (uint32_t j = 0; j < task->values; ++j) {
      float* state = task->state + size_t{j} * task->columns;
      for (uint32_t k = 0; k < task->columns; ++k) state[k] *= keep;
      const float recalled = Dot(state, key, task->columns);
      const float correction = (task->v[t * task->v_stride + j] - recalled) * beta;
      for (uint32_t k = 0; k < task->columns; ++k) state[k] = Fma(key[k], correction, state[k]);
      task->out[t * task->out_stride + j] = Dot(state, task->q + t * task->qk_stride, task->columns);
    }
  }
}

}  // namespace

extern const KernelTable kReferenceKernels = {
    .name = "reference",
    .quantise_q8 = QuantiseQ8,
    .matmul = MatMul,
    .dequantise = Dequantise,
    .rms_norm = RmsNorm,
    .rope = Rope,
    .attention = Attention,
    .silu_mul = SiluMul,
    .add_scaled = AddScaled,
    .exp = ExpRow,
    .softmax = Softmax,
    .dot = Dot,
    .store_kv = StoreKv,
    .convolve = Convolve,
    .scan = Scan,
    .delta_scan = DeltaScan,
};

}  // namespace bulkhead::kernels
