// A model file's facts as the daemon plans with them, from the header and the engine's own estimate.
#pragma once

#include <string>

#include "base/status.h"
#include "bulkhead/v1/types.pb.h"

namespace bulkhead::engine {
class LoadedModel;
}

namespace bulkhead::worker {

absl::StatusOr<v1::Manifest> MakeManifest(const engine::LoadedModel& model);

// One JSON object on one line, fields in the proto's order, numbers as numbers.
std::string ManifestJson(const v1::Manifest& manifest);

}  // namespace bulkhead::worker
