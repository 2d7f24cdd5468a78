// `bulkhead-worker --inspect`: reads a file's header under the same fence as a worker and prints the manifest.
#pragma once

#include <string_view>

namespace bulkhead::worker {

class Hooks;

enum class InspectFormat { kJson, kFrame };

// The manifest of descriptor 4, or of `path` where it is not empty (opened before the fence), on stdout. A file that
// cannot be used: the reason on stderr as "NAME_OF_REASON: message", and the exit code by reason. Does not return.
[[noreturn]] void RunInspect(std::string_view path, InspectFormat format, Hooks* hooks);

}  // namespace bulkhead::worker
