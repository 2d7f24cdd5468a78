#include "daemon/memory_warnings.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "daemon/units.h"

namespace bulkhead::daemon {
namespace {

// Differences below these are noise: allocator slack, pages of the program itself.
constexpr uint64_t kBeyond = 16 << 20;
constexpr uint64_t kUnused = 1024 << 20;
constexpr uint64_t kProgram = 64 << 20;

bool IsReady(const supervisor::ResidentModel& model) { return model.state == "IDLE" || model.state == "BUSY"; }

void OfOne(const supervisor::ResidentModel& model, std::vector<std::string>* out) {
  const uint64_t estimate = model.estimate_bytes - std::min(model.estimate_bytes, model.shared_bytes);
  if (model.measured_bytes > estimate + std::max(kBeyond, estimate / 16)) {
    out->push_back(
        fmt::format("{}: grew to {} of private memory, {} were estimated; it is charged what was measured, "
                    "and so will be the next one",
                    model.allocation_id, Mebibytes(model.measured_bytes), Mebibytes(estimate)));
  }
  if (!IsReady(model)) return;
  if (estimate > model.measured_bytes + kUnused && model.measured_bytes < estimate / 2) {
    out->push_back(
        fmt::format("{}: is charged {} of private memory and never used more than {}; a smaller --context or "
                    "fewer --sequences would charge less",
                    model.allocation_id, Mebibytes(estimate), Mebibytes(model.measured_bytes)));
  }
  if (model.file_bytes + kProgram < model.shared_bytes / 2) {
    out->push_back(
        fmt::format("{}: {} of its {} of weights are in memory; the next generation reads the rest from disk",
                    model.allocation_id, Mebibytes(model.file_bytes), Mebibytes(model.shared_bytes)));
  }
}

struct Mapped {
  uint64_t weights = 0;
  uint64_t shares = 0;
  std::string workers;
  size_t count = 0;
};

}  // namespace

std::vector<std::string> MemoryWarnings(std::span<const supervisor::ResidentModel> models) {
  std::vector<std::string> warnings;
  std::map<admission::FileIdentity, Mapped> files;
  for (const supervisor::ResidentModel& model : models) {
    OfOne(model, &warnings);
    if (!IsReady(model)) continue;
    Mapped& mapped = files[model.file];
    mapped.weights = model.shared_bytes;
    mapped.shares += model.share_bytes;
    mapped.workers += (mapped.count++ == 0 ? "" : ", ") + model.allocation_id;
  }
  // The file's pages once, and the program's for each.
  for (const auto& [file, mapped] : files) {
    if (mapped.count < 2 || mapped.shares <= mapped.weights + mapped.count * kProgram) continue;
    warnings.push_back(fmt::format("{}: map one file, charged once at {}, and hold {} of it", mapped.workers,
                                   Mebibytes(mapped.weights), Mebibytes(mapped.shares)));
  }
  return warnings;
}

}  // namespace bulkhead::daemon
