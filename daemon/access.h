// Who may do what, and how much of the daemon one user may take. Users are told apart by the kernel's word about the
// peer, never by a name. Loop thread only.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>
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

// What one user has taken of one resource; given back on destruction. Must not outlive its ledger.
class UidShare {
 public:
  UidShare() = default;
  UidShare(UidShare&& other) noexcept { *this = std::move(other); }
  UidShare& operator=(UidShare&& other) noexcept {
    if (this == &other) return *this;
    Reset();
    ledger_ = std::exchange(other.ledger_, nullptr);
    uid_ = other.uid_;
    resource_ = other.resource_;
    amount_ = other.amount_;
    return *this;
  }
  ~UidShare() { Reset(); }
  void Reset();
  [[nodiscard]] bool held() const { return ledger_ != nullptr; }

 private:
  friend class UidLedger;
  UidShare(UidLedger* ledger, uid_t uid, UidResource resource, uint64_t amount)
      : ledger_(ledger), uid_(uid), resource_(resource), amount_(amount) {}

  UidLedger* ledger_ = nullptr;
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
  friend class UidShare;
  void GiveBack(uid_t uid, UidResource resource, uint64_t amount);

  std::map<uid_t, std::array<uint64_t, kUidResources>> held_;
};

}  // namespace bulkhead::daemon
