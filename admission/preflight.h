// The answer to "would it fit, and why": the arithmetic of one request, line by line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "admission/assessment.h"
#include "admission/verdict.h"

namespace bulkhead::admission {

struct PreflightLine {
  std::string what;
  int64_t bytes = 0;
  std::string note;
};

struct PreflightReport {
  Verdict verdict = Verdict::kAllowed;
  std::vector<PreflightLine> lines;
  Shape shape;  // what would be loaded
  Charge estimate;
  std::vector<AllocationId> would_release;  // in the order of release
  uint32_t max_context = 0;                 // the largest that fits the ceiling with one sequence
  Refusal refusal;                          // filled unless kAllowed
};

// The report on `request`, which `assessor` found to be `assessment`.
[[nodiscard]] PreflightReport Report(const AdmitRequest& request, const Assessor& assessor,
                                     const Assessment& assessment);

}  // namespace bulkhead::admission
