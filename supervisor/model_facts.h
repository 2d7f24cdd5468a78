// From what a file's header says to what admission needs to know of it. Pure.
#pragma once

#include <memory>
#include <string>

#include "admission/estimate.h"
#include "bulkhead/v1/types.pb.h"
#include "supervisor/settings.h"

namespace bulkhead::supervisor {

std::shared_ptr<const admission::ModelFacts> FactsOf(const v1::Manifest& manifest, const std::string& model,
                                                     const admission::FileIdentity& file,
                                                     const SupervisionSettings& settings);

}  // namespace bulkhead::supervisor
