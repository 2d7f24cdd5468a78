#include "client/locate.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>

#include "base/status.h"
#include "base/sys.h"
#include "bulkhead/v1/client.pb.h"

namespace bulkhead::client {
namespace {

constexpr char kSystemSocket[] = "/run/bulkhead/bulkhead.sock";

std::string_view Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : value;
}

absl::Status FileError(const std::string& path, int error) {
  char buffer[128];
  const Reason reason = error == EACCES || error == EPERM ? Reason::kPermissionDenied : Reason::kModelNotFound;
  return Error(reason, fmt::format("model file {}: {}", path, strerror_r(error, buffer, sizeof(buffer))));
}

}  // namespace

std::vector<std::string> SocketCandidates(std::string_view chosen) {
  if (!chosen.empty()) return {std::string(chosen)};
  if (const auto set = Environment("BULKHEAD_SOCKET"); !set.empty()) return {std::string(set)};
  std::vector<std::string> candidates;
  if (const auto runtime = Environment("XDG_RUNTIME_DIR"); !runtime.empty()) {
    candidates.push_back(fmt::format("{}/bulkhead/bulkhead.sock", runtime));
  }
  candidates.emplace_back(kSystemSocket);
  return candidates;
}

absl::StatusOr<ModelArgument> ResolveModel(const std::string& argument) {
  if (argument.empty()) return Error(Reason::kInvalidRequest, "MODEL is empty: give a name or a path ending in .gguf");
  if (!argument.ends_with(".gguf")) return ModelArgument{argument, UniqueFd()};
  // Nonblocking, so that a FIFO of that name does not hang the client; it changes nothing for a regular file.
  const int fd = sys::Open(argument.c_str(), O_RDONLY | O_NONBLOCK);
  if (fd < 0) return FileError(argument, -fd);
  UniqueFd file(fd);
  struct stat info {};
  if (const int error = sys::Fstat(file.get(), &info); error < 0) return FileError(argument, -error);
  if (!S_ISREG(info.st_mode)) {
    return Error(Reason::kModelNotFound, fmt::format("model file {}: not a regular file", argument));
  }
  return ModelArgument{"", std::move(file)};
}

void SetModelRef(const ModelArgument& model, v1::ModelRef* ref) {
  if (model.file.valid()) {
    ref->set_passed(true);
  } else {
    ref->set_name(model.name);
  }
}

}  // namespace bulkhead::client
