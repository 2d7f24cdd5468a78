#include "daemon/idempotency_keys.h"

#include <fmt/format.h>

namespace bulkhead::daemon {

IdempotencyKeys::Claim::~Claim() {
  if (begun_) return;
  const auto entry = entries_->extract(name_);
  for (const auto& look_again : entry.mapped().waiters) look_again();
}

void IdempotencyKeys::Claim::Begun(std::string inference_id) {
  begun_ = true;
  Entry& entry = entries_->at(name_);
  entry.inference_id = std::move(inference_id);
  for (const auto& look_again : std::exchange(entry.waiters, {})) look_again();
}

absl::StatusOr<IdempotencyKeys::Use> IdempotencyKeys::Look(uid_t uid, const std::string& key, uint64_t fingerprint) {
  const auto [place, fresh] = entries_->try_emplace({uid, key});
  if (fresh) {
    place->second.fingerprint = fingerprint;
    return Use{std::make_unique<Claim>(entries_, place->first), {}};
  }
  if (place->second.fingerprint != fingerprint) {
    return Error(Reason::kInvalidRequest, "idempotency_key: was used for another request, which is still kept");
  }
  return Use{nullptr, place->second.inference_id};
}

void IdempotencyKeys::Wait(uid_t uid, const std::string& key, std::function<void()> look_again) {
  entries_->at({uid, key}).waiters.push_back(std::move(look_again));
}

void IdempotencyKeys::Forget(uid_t uid, const std::string& key) { entries_->erase({uid, key}); }

uint64_t FingerprintOf(const v1::GenerateRequest& request, std::string_view descriptor_name) {
  v1::GenerateRequest bare = request;
  bare.clear_idempotency_key();
  const std::string bytes = bare.SerializeAsString();
  // FNV-1a: it finds mistakes, it need not withstand an attack on one's own requests.
  uint64_t hash = 0xCBF29CE484222325ULL;
  for (const std::string_view part : {std::string_view(bytes), descriptor_name}) {
    for (const char c : part) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3ULL;
  }
  return hash;
}

}  // namespace bulkhead::daemon
