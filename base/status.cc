#include "base/status.h"

#include <absl/strings/cord.h>
#include <fmt/format.h>

#include <cstring>

namespace bulkhead {
namespace {

constexpr char kReasonUrl[] = "bulkhead/reason";

}  // namespace

absl::Status Error(Reason reason, std::string_view message) {
  absl::Status status(InfoOf(reason).code, absl::string_view(message.data(), message.size()));
  const std::string name(NameOf(reason));
  status.SetPayload(kReasonUrl, absl::Cord(name));
  return status;
}

Reason ReasonOf(const absl::Status& status) {
  if (status.ok()) return Reason::kUnspecified;
  const auto payload = status.GetPayload(kReasonUrl);
  if (!payload.has_value()) return Reason::kInternal;
  return ReasonFromName(std::string(*payload)).value_or(Reason::kInternal);
}

std::string Message(const absl::Status& status) {
  return std::string(status.message().data(), status.message().size());
}

absl::Status ErrnoError(int error, std::string_view what) {
  char buffer[128];
  return Error(Reason::kInternal, fmt::format("{}: {}", what, strerror_r(error, buffer, sizeof(buffer))));
}

}  // namespace bulkhead
