// The command line of make_model.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "tools/make_model/model_spec.h"

namespace bulkhead::tools {

struct MakeModelOptions {
  ModelSpec spec;
  std::string path;
  bool help = false;
};

std::string MakeModelHelp();

// `arguments` without the program's name. kInvalidRequest naming the argument that is wrong.
absl::StatusOr<MakeModelOptions> ParseMakeModelOptions(std::span<const std::string_view> arguments);

}  // namespace bulkhead::tools
