// Who may do what, and how much of the daemon one user may take. Users are told apart by the kernel's word about the
// peer, never by a name. Loop thread only.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/status.h"
#include "ipc/peer.h"

namespace bulkhead::daemon {

class Access {
 public:
  Access(uid_t own_uid, std::optional<gid_t> admin_group) : own_uid_(own_uid), admin_group_(admin_group) {}

  // Root, the daemon's own user, or a member of the admin group.
  [[nodiscard]] bool IsAdmin(const ipc::PeerCredentials& peer) const;

 private:
  uid_t own_uid_;
  std::optional<gid_t> admin_group_;
};

// The group called `name`, or of that number; nullopt for an empty name. Asks the name service: not for the loop.
absl::StatusOr<std::optional<gid_t>> ResolveGroup(const std::string& name);

enum class UidResource : uint8_t { kConnections, kInFlight, kReceivedBytes, kQueuedBytes };
inline constexpr size_t kUidResources = 4;

class UidLedger;
using UidCounts = std::map<uid_t, std::array<uint64_t, kUidResources>>;

// What one user has taken of one resource; given back on destruction. It may outlive its ledger: a closure that waits
// for a background thread does when the daemon stops.
class UidShare {
 public:
  UidShare() = default;
  UidShare(UidShare&& other) noexcept { *this = std::move(other); }
  UidShare& operator=(UidShare&& other) noexcept {
    if (this == &other) return *this;
    Reset();
    held_ = std::move(other.held_);
    uid_ = other.uid_;
    resource_ = other.resource_;
    amount_ = other.amount_;
    return *this;
  }
  ~UidShare() { Reset(); }
  void Reset();
  [[nodiscard]] bool held() const { return held_ != nullptr; }

 private:
  friend class UidLedger;
  UidShare(std::shared_ptr<UidCounts> held, uid_t uid, UidResource resource, uint64_t amount)
      : held_(std::move(held)), uid_(uid), resource_(resource), amount_(amount) {}

  std::shared_ptr<UidCounts> held_;
  uid_t uid_ = 0;
  UidResource resource_ = UidResource::kConnections;
  uint64_t amount_ = 0;
};

class UidLedger {
 public:
  // kLimitExceeded names the resource, what was asked on top of what is held, and the limit.
  absl::StatusOr<UidShare> Take(uid_t uid, UidResource resource, uint64_t amount, uint64_t limit);
  [[nodiscard]] uint64_t Held(uid_t uid, UidResource resource) const;

 private:
  std::shared_ptr<UidCounts> held_ = std::make_shared<UidCounts>();
};

}  // namespace bulkhead::daemon
