// What a caller of the offload asks for, fully resolved: names already looked up, rights already checked, defaults of
// the connection filled in. Plain values; sizes in bytes, times in the unit their name says, 0 = the default unless
// said otherwise.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/fd.h"
#include "bulkhead/v1/types.pb.h"

namespace bulkhead::supervisor {

// One model file. The descriptor is a read-only one of a regular file; it is shared, and stays open for as long as a
// worker may have to be started from it. A passed descriptor serves only the uid that passed it.
struct ModelSource {
  std::string name;  // catalogue id, or PassedModelName()
  std::shared_ptr<const UniqueFd> file;
  bool passed = false;
  uid_t uid = 0;  // of a passed descriptor
};

// A name for the file behind a passed descriptor that says nothing of its path: "fd:<uid>:<hex>", equal for equal
// (uid, device, inode, size, mtime). Empty where the descriptor cannot be examined.
std::string PassedModelName(int fd, uid_t uid);

struct OffloadRequest {
  std::string inference_id;  // empty: the offload makes one
  ModelSource model;
  // Raw text, messages for the model's chat template, or exact token ids.
  std::variant<std::string, std::vector<v1::Message>, std::vector<int32_t>> input;
  v1::Sampling sampling;  // without a seed the offload chooses one and echoes it in OnStarted
  uint32_t max_tokens = 0;
  uint32_t context = 0;
  std::chrono::milliseconds deadline{0};        // from now to the terminal; 0 = none
  std::chrono::milliseconds queue_deadline{0};  // from now to OnStarted
  v1::Priority priority = v1::PRIORITY_NORMAL;
  v1::OnWorkerDeath on_worker_death = v1::ON_WORKER_DEATH_RESUME;
  bool require_exact = false;
  uid_t uid = 0;
  int64_t now_unix_s = 0;
  // Of a request that outlived the daemon: what it had produced, and how many workers it had lost.
  std::vector<int32_t> resume_ids;
  uint32_t resumes = 0;
};

struct LoadSpec {
  ModelSource model;
  uint32_t context = 0;
  uint32_t sequences = 0;
  bool pin = false;  // false leaves a pin that is already there
  std::chrono::milliseconds queue_deadline{0};
  uid_t uid = 0;
};

struct TokenizeSpec {
  ModelSource model;
  std::string text;
  bool add_special = false;
  bool parse_special = false;
  uid_t uid = 0;
};

struct ReleaseOptions {
  bool force = false;                  // a busy model: no drain
  std::chrono::milliseconds drain{0};  // how long requests of a busy model may go on
};

// Who ended a generation gently; decides its terminal.
enum class CancelCause : uint8_t {
  kOwner,          // done{CANCELLED}
  kOther,          // error CANCELLED
  kClientStalled,  // error CLIENT_STALLED
  kClientGone,     // done{CANCELLED}, to nobody
};

}  // namespace bulkhead::supervisor
