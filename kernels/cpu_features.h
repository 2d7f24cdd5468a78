// What this processor and its operating system let us use. Read once; thread-safe.
#pragma once

#include <string>

namespace bulkhead::kernels {

struct CpuFeatures {
  bool avx2 = false;
  bool fma = false;
  bool f16c = false;
  bool avx512f = false;
  bool avx512bw = false;
  bool avx512dq = false;
  bool avx512vl = false;
  bool avx512vnni = false;
};

// A feature counts only where the operating system saves its registers too.
CpuFeatures DetectCpuFeatures();

// "avx2 fma f16c", or "none".
std::string Describe(const CpuFeatures& features);

}  // namespace bulkhead::kernels
