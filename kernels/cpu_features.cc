#include "kernels/cpu_features.h"

namespace bulkhead::kernels {

CpuFeatures DetectCpuFeatures() {
  CpuFeatures features;
#if defined(__x86_64__)
  // libgcc's check reads XCR0 as well, so a kernel that does not save the registers hides the feature.
  features.avx2 = __builtin_cpu_supports("avx2");
  features.fma = __builtin_cpu_supports("fma");
  features.f16c = __builtin_cpu_supports("f16c");
  features.avx512f = __builtin_cpu_supports("avx512f");
  features.avx512bw = __builtin_cpu_supports("avx512bw");
  features.avx512dq = __builtin_cpu_supports("avx512dq");
  features.avx512vl = __builtin_cpu_supports("avx512vl");
  features.avx512vnni = __builtin_cpu_supports("avx512vnni");
#endif
  return features;
}

std::string Describe(const CpuFeatures& features) {
  std::string text;
  auto add = [&text](bool present, const char* name) {
    if (!present) return;
    if (!text.empty()) text += ' ';
    text += name;
  };
  add(features.avx2, "avx2");
  add(features.fma, "fma");
  add(features.f16c, "f16c");
  add(features.avx512f, "avx512f");
  add(features.avx512bw, "avx512bw");
  add(features.avx512dq, "avx512dq");
  add(features.avx512vl, "avx512vl");
  add(features.avx512vnni, "avx512vnni");
  return text.empty() ? "none" : text;
}

}  // namespace bulkhead::kernels
