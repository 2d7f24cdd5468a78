// LocalGenerationOffload: generations in isolated processes, as a caller in the daemon sees them. The contract's rules
// are DESIGN's section 3; WorkerOffload (worker_offload.h) implements them, a test double overrides what it needs.
//
// Thread rule: one thread, the one of the libuv loop the implementation was given. Calls return at once; callbacks and
// sinks run later on that loop, never inside the call. Every `done` is called exactly once, also through Shutdown.
// Queries (const methods) answer from memory. Rights are the caller's to check. The defaults below, for test doubles,
// have no loop and are conservative: nothing is resident, nothing is ever confirmed, `done` is called at once.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "supervisor/request.h"
#include "supervisor/snapshot.h"
#include "supervisor/stream_sink.h"

namespace bulkhead::supervisor {

// A move-only lease on one allocation, plus its reservation in the ledger while no process exists yet. From spawn on
// the allocation owns the charge: dropping a ticket gives back the lease (and an unused reservation), never the charge
// of a live process.
class LocalWorkerAdmission {
 public:
  // Implementations derive; destruction gives the lease back.
  class Lease {
   public:
    virtual ~Lease() = default;
    [[nodiscard]] virtual std::string allocation_id() const = 0;
  };

  LocalWorkerAdmission() = default;
  explicit LocalWorkerAdmission(std::unique_ptr<Lease> lease) : lease_(std::move(lease)) {}

  [[nodiscard]] bool valid() const { return lease_ != nullptr; }
  [[nodiscard]] std::string allocation_id() const { return lease_ ? lease_->allocation_id() : std::string(); }
  [[nodiscard]] Lease* lease() const { return lease_.get(); }

 private:
  std::unique_ptr<Lease> lease_;
};

// A whole generation at once.
struct LocalOffloadResult {
  std::string inference_id;
  std::string allocation_id;
  bool weights_resident = false;  // the worker keeps the model after this
  uint64_t seed = 0;
  uint32_t context = 0;
  std::string text;
  std::vector<v1::Token> tokens;
  DoneEvent done;
};

struct LoadResult {
  std::string model;
  std::string allocation_id;
  uint32_t context = 0;
  uint32_t sequences = 0;
  uint64_t charge_bytes = 0;
  bool already_resident = false;
};

struct InferenceTerminationAck {
  enum class Kind : uint8_t {
    kNotRunning,       // nothing of that id is known
    kAlreadyTerminal,  // it had ended before
    kConfirmed,        // its process was reaped, settled and retired; or it was dequeued before it had one
    kUnconfirmed,      // still charged, still being tried
  };
  Kind kind = Kind::kNotRunning;
  std::string allocation_id;
  std::string how;  // of kConfirmed: "dequeued", or how the process ended
  std::string why;  // of kUnconfirmed
};

struct ReleaseIdleResult {
  std::vector<std::string> released;     // reaped, settled, retired
  std::vector<std::string> unconfirmed;  // kill not confirmed in time; still charged
};

class LocalGenerationOffload {
 public:
  using GenerateDone = std::function<void(std::variant<LocalOffloadResult, OffloadError>)>;
  using Admitted = std::function<void(OffloadRequest, LocalWorkerAdmission, std::unique_ptr<StreamSink>)>;
  using LoadProgress = std::function<void(const LoadingEvent&)>;

  virtual ~LocalGenerationOffload() = default;

  // One generation; the id comes back at once. No path runs without a ticket: these acquire one, then call the
  // *Admitted forms. A refusal is the sink's OnError.
  std::string Generate(OffloadRequest request, GenerateDone done);
  std::string Stream(OffloadRequest request, std::unique_ptr<StreamSink> sink);

  // Waits for admission (telling `sink` of the queue), then hands request, ticket and sink to `admitted`; or ends the
  // sink with its one error. The request has an inference id by then.
  virtual void AcquireAdmission(OffloadRequest request, std::unique_ptr<StreamSink> sink, Admitted admitted) = 0;

  // Runs on a ticket already held; an invalid ticket is an error.
  virtual void GenerateAdmitted(OffloadRequest request, LocalWorkerAdmission ticket, GenerateDone done) = 0;
  virtual void StreamAdmitted(OffloadRequest request, LocalWorkerAdmission ticket,
                              std::unique_ptr<StreamSink> sink) = 0;

  // Gentle: the process lives, unless its progress has stopped. False where nothing of that id (an inference or a
  // load) is under way. The terminal follows through the sink.
  virtual bool Cancel(std::string_view inference_id, CancelCause cause);
  // Flow control: a paused sequence keeps its pages and leaves the batch. False as Cancel.
  virtual bool Pause(std::string_view inference_id, bool paused);
  // Kills and waits for exactly the process that runs it. Another process's requests are untouched; others in the same
  // process are innocent: they resume, or with on_worker_death = FAIL end with WORKER_TERMINATED.
  virtual void TerminateInference(std::string_view inference_id, std::function<void(InferenceTerminationAck)> done);
  // Other uids whose requests would end with the process that runs `inference_id`: to be asked before
  // TerminateInference.
  [[nodiscard]] virtual std::vector<uid_t> OthersInProcessOf(std::string_view inference_id) const;

  // true: reaped, settled, charge retired; false: nothing was resident. An error where the kill could not be confirmed
  // in time (PENDING_TEARDOWN): still charged, still being tried.
  virtual void ReleaseModel(std::string_view model, ReleaseOptions options,
                            std::function<void(absl::StatusOr<bool>)> done);
  // Decides and marks in this very call; busy, loading and pinned ones stay.
  virtual void ReleaseIdleModels(std::chrono::nanoseconds idle_for, std::function<void(ReleaseIdleResult)> done);

  // Brings a worker up without a request. The id can be cancelled.
  virtual std::string Load(LoadSpec spec, LoadProgress progress, std::function<void(absl::StatusOr<LoadResult>)> done);
  // Sets or clears the pin of what is resident; false where nothing is.
  virtual bool SetPinned(std::string_view model, bool pinned);
  virtual void Inspect(ModelSource model, std::function<void(absl::StatusOr<v1::Manifest>)> done);
  virtual void Preflight(LoadSpec spec, std::function<void(absl::StatusOr<PreflightReport>)> done);
  virtual void Tokenize(TokenizeSpec spec, std::function<void(absl::StatusOr<std::vector<int32_t>>)> done);

  // Takes the resource policy in force anew if `generation` is above the last one; never waits on a worker.
  virtual void RefreshResourcePolicy(uint64_t generation);
  // Closes the model's breaker; true if it was open.
  virtual bool Unblock(std::string_view model);

  // Reads how each worker's memory is mapped (ResidentModel::share_bytes, huge pages), off the loop.
  virtual void MeasureMaps(std::function<void()> done);
  [[nodiscard]] virtual std::vector<ResidentModel> ResidentModels() const;
  [[nodiscard]] virtual std::optional<std::string> ResidentAllocationId(std::string_view model) const;
  [[nodiscard]] virtual std::vector<RequestInfo> Requests() const;
  [[nodiscard]] virtual std::optional<RequestInfo> FindRequest(std::string_view inference_id) const;
  [[nodiscard]] virtual BudgetSnapshot Budget() const;
  [[nodiscard]] virtual std::vector<v1::Death> Deaths() const;
  [[nodiscard]] virtual bool Blocked(std::string_view model) const;

  // Refuses new work, drains what runs for `drain`, cancels, kills, waits, answers everything, then calls `done`, after
  // which the object may be destroyed.
  virtual void Shutdown(std::chrono::milliseconds drain, std::function<void()> done);

 protected:
  // "inf-" and 16 hex digits of getrandom.
  static std::string NewInferenceId();
};

}  // namespace bulkhead::supervisor
