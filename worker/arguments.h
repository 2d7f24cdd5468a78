// What bulkhead-worker was asked to be on its command line.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "worker/inspect.h"

namespace bulkhead::worker {

struct Arguments {
  bool inspect = false;
  InspectFormat format = InspectFormat::kJson;
  std::string_view path;  // of --inspect; empty: descriptor 4
};

// nullopt where they make no sense.
std::optional<Arguments> ParseArguments(std::span<char* const> arguments);

// Runs what they ask for, or says how they are used. Does not return.
[[noreturn]] void RunArguments(std::span<char* const> arguments, Hooks* hooks);

}  // namespace bulkhead::worker
