// What recurrent layers, gates and granite's scales need beside compute.cc. Only exp and the scans have kernels of
// their own: the rest is single operations, rounded one by one whatever the compiler makes of them.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/compute.h"
#include "kernels/run_rows.h"

namespace bulkhead::kernels {
namespace {

// log(1 + e) for e >= 0, in doubles: 2^n m with m in [0.71, 1.42], and log m = 2 atanh((m - 1) / (m + 1)) as its
// series.
double LogOfOnePlus(double e) {
  int exponent = 0;
  double m = std::frexp(1.0 + e, &exponent);  // in [0.5, 1)
  if (m < 0x1.6a09e667f3bcdp-1) {
    m *= 2;
    --exponent;
  }
  const double s = (m - 1) / (m + 1);
  const double s2 = s * s;
  double sum = 1.0 / 15;
  for (int n = 13; n >= 1; n -= 2) sum = sum * s2 + 1.0 / n;
  return 2 * s * sum + exponent * 0x1.62e42fefa39efp-1;
}

// Beyond 20, exp(-x) is lost beside x; below -16, log(1 + e) is e to within a float's half last bit and less.
float SoftplusOf(float x, float exp_of_x) {
  if (x > 20.0F) return x;
  if (x < -16.0F) return exp_of_x;
  return static_cast<float>(LogOfOnePlus(exp_of_x));
}

uint32_t GroupOf(const ScanShape& shape, uint32_t head) {
  return shape.tiled ? head % shape.groups : head / (shape.heads / shape.groups);
}

constexpr uint32_t kConvChannels = 256;  // of a chunk

}  // namespace

void Compute::Scale(const Rows& x, float factor) const {
  RunRows(pool_, x.tokens, x.count, [&](uint32_t begin, uint32_t end) {
    for (size_t t = begin; t < end; ++t) {
      float* row = x.data + t * x.stride;
      for (uint32_t k = 0; k < x.count; ++k) row[k] *= factor;
    }
  });
}

void Compute::Multiply(const ConstRows& x, const ConstRows& y, const Rows& out) const {
  RunRows(pool_, x.tokens, x.count, [&](uint32_t begin, uint32_t end) {
    for (size_t t = begin; t < end; ++t) {
      for (uint32_t k = 0; k < x.count; ++k) {
        out.data[t * out.stride + k] = x.data[t * x.stride + k] * y.data[t * y.stride + k];
      }
    }
  });
}

void Compute::Sigmoid(const Rows& x) const {
  RunRows(pool_, x.tokens, x.count, [&](uint32_t begin, uint32_t end) {
    for (size_t t = begin; t < end; ++t) {
      float* row = x.data + t * x.stride;
      for (uint32_t k = 0; k < x.count; ++k) row[k] = -row[k];
      kernels_.exp(row, x.count, row);
      for (uint32_t k = 0; k < x.count; ++k) row[k] = 1.0F / (1.0F + row[k]);
    }
  });
}

void Compute::SigmoidMul(const Rows& gate, const Rows& x) const {
  Sigmoid(gate);
  Multiply({x.data, x.stride, x.tokens, x.count}, {gate.data, gate.stride, gate.tokens, gate.count}, x);
}

void Compute::Softplus(const Rows& x, const float* bias) const {
  RunRows(pool_, x.tokens, size_t{x.count} * 8, [&](uint32_t begin, uint32_t end) {
    float shifted[64];
    for (size_t t = begin; t < end; ++t) {
      for (uint32_t first = 0; first < x.count; first += 64) {
        float* row = x.data + t * x.stride + first;
        const uint32_t count = std::min(x.count - first, 64U);
        for (uint32_t k = 0; k < count; ++k) shifted[k] = row[k] + bias[first + k];
        kernels_.exp(shifted, count, row);
        for (uint32_t k = 0; k < count; ++k) row[k] = SoftplusOf(shifted[k], row[k]);
      }
    }
  });
}

void Compute::ExpOfProducts(const Rows& x, const float* factors) const {
  RunRows(pool_, x.tokens, x.count, [&](uint32_t begin, uint32_t end) {
    for (size_t t = begin; t < end; ++t) {
      float* row = x.data + t * x.stride;
      for (uint32_t k = 0; k < x.count; ++k) row[k] *= factors[k];
      kernels_.exp(row, x.count, row);
    }
  });
}

void Compute::UnitNorm(const Rows& x, float epsilon, float factor) const {
  RunRows(pool_, x.tokens, x.count, [&](uint32_t begin, uint32_t end) {
    for (size_t t = begin; t < end; ++t) {
      float* row = x.data + t * x.stride;
      const float scale = factor / std::max(std::sqrt(kernels_.dot(row, row, x.count)), epsilon);
      for (uint32_t k = 0; k < x.count; ++k) row[k] *= scale;
    }
  });
}

void Compute::Convolve(const ConvShape& shape, std::span<const StateSpan> spans, const ConstRows& x,
                       const Rows& out) const {
  const uint32_t parts = CeilDiv(shape.channels, kConvChannels);
  const uint32_t kept = shape.taps - 1;
  pool_.Run(parts * static_cast<uint32_t>(spans.size()), [&](uint32_t chunk, const ComputePool::Worker&) {
    const StateSpan& span = spans[chunk / parts];
    const uint32_t first = chunk % parts * kConvChannels;
    const uint32_t count = std::min(kConvChannels, shape.channels - first);
    const float* in = x.data + size_t{span.first_token} * x.stride + first;
    const ConvTask task{.x = in,
                        .x_stride = x.stride,
                        .before = span.before + first,
                        .before_stride = shape.channels,
                        .weights = shape.weights + first,
                        .weight_stride = shape.channels,
                        .bias = shape.bias == nullptr ? nullptr : shape.bias + first,
                        .silu = shape.silu,
                        .taps = shape.taps,
                        .channels = count,
                        .tokens = span.tokens,
                        .out = out.data + size_t{span.first_token} * out.stride + first,
                        .out_stride = out.stride};
    kernels_.convolve(&task);
    for (uint32_t row = 0; row < kept; ++row) {
      const uint32_t from = span.tokens + row;  // counted from the first row before
      const float* source =
          from < kept ? span.before + size_t{from} * shape.channels + first : in + size_t{from - kept} * x.stride;
      std::memcpy(span.after + size_t{row} * shape.channels + first, source, count * sizeof(float));
    }
  });
}

void Compute::Scan(const ScanShape& shape, std::span<const StateSpan> spans, const ConstRows& x, const ConstRows& b,
                   const ConstRows& c, const ConstRows& step, const float* a, const float* d, const Rows& out) const {
  const size_t state = size_t{shape.rows} * shape.columns;
  pool_.Run(shape.heads * static_cast<uint32_t>(spans.size()), [&](uint32_t chunk, const ComputePool::Worker&) {
    const StateSpan& span = spans[chunk / shape.heads];
    const uint32_t head = chunk % shape.heads;
    const size_t group = size_t{GroupOf(shape, head)} * shape.columns;
    const size_t token = span.first_token;
    std::memcpy(span.after + head * state, span.before + head * state, state * sizeof(float));
    const ScanTask task{.state = span.after + head * state,
                        .head = shape.rows,
                        .columns = shape.columns,
                        .tokens = span.tokens,
                        .x = x.data + token * x.stride + size_t{head} * shape.rows,
                        .x_stride = x.stride,
                        .b = b.data + token * b.stride + group,
                        .c = c.data + token * c.stride + group,
                        .bc_stride = b.stride,
                        .step = step.data + token * step.stride + head,
                        .step_stride = step.stride,
                        .a = a[head],
                        .d = d[head],
                        .out = out.data + token * out.stride + size_t{head} * shape.rows,
                        .out_stride = out.stride};
    kernels_.scan(&task);
  });
}

void Compute::DeltaScan(const ScanShape& shape, std::span<const StateSpan> spans, const ConstRows& q,
                        const ConstRows& k, const ConstRows& v, const ConstRows& keep, const ConstRows& beta,
                        const Rows& out) const {
  const size_t state = size_t{shape.rows} * shape.columns;
  pool_.Run(shape.heads * static_cast<uint32_t>(spans.size()), [&](uint32_t chunk, const ComputePool::Worker&) {
    const StateSpan& span = spans[chunk / shape.heads];
    const uint32_t head = chunk % shape.heads;
    const size_t group = size_t{GroupOf(shape, head)} * shape.columns;
    const size_t token = span.first_token;
    std::memcpy(span.after + head * state, span.before + head * state, state * sizeof(float));
    const DeltaTask task{.state = span.after + head * state,
                         .values = shape.rows,
                         .columns = shape.columns,
                         .tokens = span.tokens,
                         .q = q.data + token * q.stride + group,
                         .k = k.data + token * k.stride + group,
                         .qk_stride = q.stride,
                         .v = v.data + token * v.stride + size_t{head} * shape.rows,
                         .v_stride = v.stride,
                         .keep = keep.data + token * keep.stride + head,
                         .beta = beta.data + token * beta.stride + head,
                         .gate_stride = keep.stride,
                         .out = out.data + token * out.stride + size_t{head} * shape.rows,
                         .out_stride = out.stride};
    kernels_.delta_scan(&task);
  });
}

}  // namespace bulkhead::kernels
