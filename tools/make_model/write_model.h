// Writes a model of random weights.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/status.h"
#include "tools/make_model/model_spec.h"

namespace bulkhead::tools {

// Takes the file's bytes in order; an error ends the writing.
using ByteSink = std::function<absl::Status(std::span<const std::byte>)>;

absl::Status WriteModel(const ModelSpec& spec, const ByteSink& sink);

// To a file that is made or overwritten. Answers its size in bytes.
absl::StatusOr<uint64_t> WriteModelFile(const ModelSpec& spec, const std::string& path);

}  // namespace bulkhead::tools
