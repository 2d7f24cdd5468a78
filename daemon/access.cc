#include "daemon/access.h"

#include <fmt/format.h>
#include <grp.h>

#include <algorithm>
#include <charconv>
#include <vector>

namespace bulkhead::daemon {
namespace {

std::string_view NameOf(UidResource resource) {
  switch (resource) {
    case UidResource::kConnections:
      return "connections";
    case UidResource::kInFlight:
      return "requests in flight";
    case UidResource::kReceivedBytes:
      return "bytes of unfinished frames and waiting requests";
    case UidResource::kQueuedBytes:
      return "bytes that wait to be read";
  }
  return "?";
}

}  // namespace

bool Access::IsAdmin(const ipc::PeerCredentials& peer) const {
  if (peer.uid == 0 || peer.uid == own_uid_) return true;
  return admin_group_.has_value() && peer.InGroup(*admin_group_);
}

absl::StatusOr<std::optional<gid_t>> ResolveGroup(const std::string& name) {
  if (name.empty()) return std::optional<gid_t>();
  gid_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error == std::errc() && end == name.data() + name.size()) return std::optional<gid_t>(number);
  std::vector<char> buffer(64 << 10);
  group entry = {};
  group* found = nullptr;
  getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
  if (found == nullptr) return Error(Reason::kInvalidRequest, fmt::format("group {}: does not exist", name));
  return std::optional<gid_t>(found->gr_gid);
}

void UidShare::Reset() {
  if (held_ == nullptr) return;
  const auto found = held_->find(uid_);
  found->second[static_cast<size_t>(resource_)] -= amount_;
  const auto& all = found->second;
  if (std::all_of(all.begin(), all.end(), [](uint64_t value) { return value == 0; })) held_->erase(found);
  held_.reset();
}

absl::StatusOr<UidShare> UidLedger::Take(uid_t uid, UidResource resource, uint64_t amount, uint64_t limit) {
  const uint64_t held = Held(uid, resource);
  if (amount > limit || held > limit - amount) {
    return Error(Reason::kLimitExceeded, fmt::format("uid {}: {} more {} on top of {} exceed the limit of {}", uid,
                                                     amount, NameOf(resource), held, limit));
  }
  (*held_)[uid][static_cast<size_t>(resource)] += amount;
  return UidShare(held_, uid, resource, amount);
}

uint64_t UidLedger::Held(uid_t uid, UidResource resource) const {
  const auto found = held_->find(uid);
  return found == held_->end() ? 0 : found->second[static_cast<size_t>(resource)];
}

}  // namespace bulkhead::daemon
