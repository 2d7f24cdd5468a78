// Which inference a user's idempotency_key stands for: a request repeated under its key is to listen to the inference
// of the first, not to begin a second one. A key is claimed while its first request's model is still being looked up,
// stands for an inference afterwards, and is free again once that is forgotten. Loop thread only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "bulkhead/v1/client.pb.h"

namespace bulkhead::daemon {

class IdempotencyKeys {
  using Name = std::pair<uid_t, std::string>;
  struct Entry {
    uint64_t fingerprint = 0;
    std::string inference_id;
    std::vector<std::function<void()>> waiters;
  };
  using Entries = std::map<Name, Entry>;

 public:
  // The right to begin the inference of a key. Destroyed without Begun it frees the key, and whoever waits for it may
  // try. May outlive the keys.
  class Claim {
   public:
    Claim(std::shared_ptr<Entries> entries, Name name) : entries_(std::move(entries)), name_(std::move(name)) {}
    ~Claim();
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;
    // The last thing to do: those who wait are told in this call, and may take the inference over.
    void Begun(std::string inference_id);

   private:
    std::shared_ptr<Entries> entries_;
    const Name name_;
    bool begun_ = false;
  };

  struct Use {
    std::unique_ptr<Claim> claim;  // the key was free and is the caller's now
    std::string inference_id;      // it stands for this one
    // Neither: claimed by a request on its way.
  };
  // kInvalidRequest where the key was used for a request other than the one of `fingerprint`.
  absl::StatusOr<Use> Look(uid_t uid, const std::string& key, uint64_t fingerprint);
  // Calls `look_again`, once, when a claimed key has come to stand for an inference or is free again.
  void Wait(uid_t uid, const std::string& key, std::function<void()> look_again);
  // The inference is forgotten.
  void Forget(uid_t uid, const std::string& key);

 private:
  std::shared_ptr<Entries> entries_ = std::make_shared<Entries>();
};

// Equal for equal requests, whatever their keys; `descriptor_name` tells passed files apart.
uint64_t FingerprintOf(const v1::GenerateRequest& request, std::string_view descriptor_name);

}  // namespace bulkhead::daemon
