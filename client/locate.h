// Where the daemon's socket is, and what a MODEL argument means. No state.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"

namespace bulkhead::v1 {
class ModelRef;
}

namespace bulkhead::client {

// The sockets to try, in order: `chosen` alone if not empty, else $BULKHEAD_SOCKET alone if set, else the user's
// $XDG_RUNTIME_DIR/bulkhead/bulkhead.sock and the system's /run/bulkhead/bulkhead.sock.
std::vector<std::string> SocketCandidates(std::string_view chosen);

// A MODEL argument: a name in the daemon's catalogue, or, where it ends in ".gguf", a file, opened read-only here so
// that its descriptor can travel with the request. The daemon never sees the path.
struct ModelArgument {
  std::string name;  // of the catalogue; empty for a file
  UniqueFd file;
};

// kModelNotFound where the file cannot be opened or is not a regular file.
absl::StatusOr<ModelArgument> ResolveModel(const std::string& argument);

// Fills `ref` from `model`.
void SetModelRef(const ModelArgument& model, v1::ModelRef* ref);

}  // namespace bulkhead::client
