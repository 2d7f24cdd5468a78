// What must outlive the daemon: each running request, and what it has produced so far, as a log in shared memory that
// systemd's descriptor store (or a test's) holds. One page of head, then two halves; one is written, and when it is
// full what still matters is copied to the other, which then becomes the one. A SIGKILL at any instant leaves a
// readable log: a record counts once its length is there and its checksum is right, and the halves change places in one
// store.
//
// Layout, little-endian: head {u64 magic "BKHRECS1", u64 half size, u64 generation}; half number generation % 2 begins
// at 4096 + number * half size. Record {u32 length of payload, u32 kind, u64 serial, u64 checksum} and payload, padded
// to 8 bytes; length 0 ends the log. The checksum (FNV-1a) covers generation, kind, serial and payload, so that a
// record of an earlier generation is none. ReadRecords is pure. RecordStore: loop thread only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "admission/estimate.h"
#include "base/fd.h"
#include "base/status.h"
#include "bulkhead/v1/client.pb.h"

namespace bulkhead::daemon {

struct RecordedRequest {
  uint64_t serial = 0;
  std::string inference_id;
  uid_t uid = 0;
  uint32_t numerics = 0;  // kNumericsVersion of the daemon that wrote it
  admission::FileIdentity file;
  v1::GenerateRequest request;  // with its seed, and its model by name
  std::optional<v1::Started> started;
  std::vector<v1::Delta> deltas;  // in order, without a gap
  uint32_t resumes = 0;
  std::optional<v1::ServerFrame> terminal;
};

struct RecordedState {
  std::vector<RecordedRequest> requests;  // by serial
  uint64_t generation = 0;
  uint64_t last_serial = 0;
  size_t used = 0;  // bytes of the half that is in use
};

// kInvalidRequest where the head is none of ours. A log that breaks off in the middle of a record is read up to there.
absl::StatusOr<RecordedState> ReadRecords(std::string_view bytes);

class RecordStore {
 public:
  static constexpr size_t kHalfBytes = 8 << 20;

  static absl::StatusOr<std::unique_ptr<RecordStore>> Create(size_t half_bytes = kHalfBytes);
  // What an earlier daemon left; `state` receives what it holds.
  static absl::StatusOr<std::unique_ptr<RecordStore>> Adopt(UniqueFd fd, RecordedState* state);
  ~RecordStore();
  RecordStore(const RecordStore&) = delete;
  RecordStore& operator=(const RecordStore&) = delete;

  // 0 where it does not fit: this request will not outlive the daemon.
  uint64_t Begin(const std::string& inference_id, uid_t uid, const admission::FileIdentity& file,
                 const v1::GenerateRequest& request);
  // started, delta, resumed, done or error. Where a delta no longer fits the request is forgotten.
  void Append(uint64_t serial, const v1::ServerFrame& frame);
  void Forget(uint64_t serial);

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] size_t used() const { return used_; }

 private:
  RecordStore(UniqueFd fd, uint8_t* data, size_t half);
  bool Write(uint32_t kind, uint64_t serial, std::string_view payload);
  void Compact();
  [[nodiscard]] uint64_t generation() const;
  [[nodiscard]] size_t size() const;

  UniqueFd fd_;
  uint8_t* data_;
  size_t half_;
  size_t used_ = 0;
  size_t compacted_ = 0;  // of used_, written by the last compaction
  uint64_t last_serial_ = 0;
};

}  // namespace bulkhead::daemon
