#include "kernels/dispatch.h"

#include <fmt/format.h>

#include <cstdlib>

#include "kernels/tiers.h"

namespace bulkhead::kernels {
namespace {

struct TierRow {
  const KernelTable* table;
  const char* needs;  // in words, for the reason of a demotion
  bool (*runs)(const CpuFeatures& features);
};

// Worst first.
constexpr TierRow kTiers[] = {
    {&kReferenceKernels, "nothing", [](const CpuFeatures&) { return true; }},
#if defined(__x86_64__)
    {&kAvx2Kernels, "avx2 fma f16c", [](const CpuFeatures& f) { return f.avx2 && f.fma && f.f16c; }},
    {&kAvx512Kernels, "avx512f avx512bw avx512dq avx512vl avx512vnni",
     [](const CpuFeatures& f) {
       return f.avx2 && f.fma && f.f16c && f.avx512f && f.avx512bw && f.avx512dq && f.avx512vl && f.avx512vnni;
     }},
#endif
};

const TierRow* FindTier(std::string_view name) {
  for (const TierRow& row : kTiers) {
    if (name == row.table->name) return &row;
  }
  return nullptr;
}

std::string Lacks(const TierRow& row, const CpuFeatures& features) {
  return fmt::format("{} needs {}, this processor has {}", row.table->name, row.needs, Describe(features));
}

}  // namespace

TierChoice ChooseTier(const CpuFeatures& features, std::string_view wanted) {
  TierChoice choice{&kReferenceKernels, ""};
  for (const TierRow& row : kTiers) {
    if (row.runs(features)) {
      choice.table = row.table;
    } else if (choice.reason.empty()) {
      choice.reason = Lacks(row, features);
    }
  }
  if (wanted.empty()) return choice;
  const TierRow* row = FindTier(wanted);
  if (row == nullptr) {
    choice.reason =
        fmt::format("BULKHEAD_KERNEL_TIER={} is not a tier of this build; using {}", wanted, choice.table->name);
  } else if (!row->runs(features)) {
    choice.reason =
        fmt::format("BULKHEAD_KERNEL_TIER={}: {}; using {}", wanted, Lacks(*row, features), choice.table->name);
  } else if (row->table != choice.table) {
    choice = {row->table, fmt::format("BULKHEAD_KERNEL_TIER={} asks for it", wanted)};
  }
  return choice;
}

const TierChoice& DefaultTier() {
  static const TierChoice choice = [] {
    const char* wanted = std::getenv("BULKHEAD_KERNEL_TIER");
    return ChooseTier(DetectCpuFeatures(), wanted == nullptr ? "" : wanted);
  }();
  return choice;
}

std::vector<const KernelTable*> RunnableTiers(const CpuFeatures& features) {
  std::vector<const KernelTable*> tables;
  for (const TierRow& row : kTiers) {
    if (row.runs(features)) tables.push_back(row.table);
  }
  return tables;
}

}  // namespace bulkhead::kernels
