#include "supervisor/offload.h"

#include <absl/strings/cord.h>
#include <fmt/format.h>

#include <sstream>

#include "base/sys.h"

namespace bulkhead::supervisor {
namespace {

constexpr char kFiguresUrl[] = "bulkhead/figures";

// Hears only what may happen before admission: a refusal. Once admitted, GenerateAdmitted has its own way to answer.
class AdmissionSink final : public StreamSink {
 public:
  explicit AdmissionSink(std::shared_ptr<LocalGenerationOffload::GenerateDone> done) : done_(std::move(done)) {}
  void OnDelta(const DeltaEvent&) override {}
  void OnDone(const DoneEvent& event) override {
    LocalOffloadResult result;
    result.done = event;
    (*done_)(std::move(result));
  }
  void OnError(const OffloadError& error) override { (*done_)(error); }

 private:
  std::shared_ptr<LocalGenerationOffload::GenerateDone> done_;
};

absl::Status NotHere(std::string_view what) {
  return Error(Reason::kUnimplemented, fmt::format("{}: not offered by this offload", what));
}

}  // namespace

OffloadError OffloadError::Of(Reason reason, std::string message) {
  OffloadError error;
  error.reason = reason;
  error.message = std::move(message);
  error.retryable = InfoOf(reason).retryable;
  return error;
}

OffloadError OffloadError::Of(const absl::Status& status) {
  OffloadError error = Of(ReasonOf(status), Message(status));
  if (const auto figures = status.GetPayload(kFiguresUrl); figures.has_value()) {
    std::istringstream(std::string(*figures)) >> error.retry_after_ms >> error.length >> error.limit;
  }
  return error;
}

absl::Status OffloadError::ToStatus() const {
  absl::Status status = Error(reason, message);
  if (retry_after_ms != 0 || limit != 0) {
    status.SetPayload(kFiguresUrl, absl::Cord(fmt::format("{} {} {}", retry_after_ms, length, limit)));
  }
  return status;
}

std::string LocalGenerationOffload::NewInferenceId() {
  uint64_t number = 0;
  sys::GetRandom(&number, sizeof(number));
  return fmt::format("inf-{:016x}", number);
}

std::string LocalGenerationOffload::Generate(OffloadRequest request, GenerateDone done) {
  if (request.inference_id.empty()) request.inference_id = NewInferenceId();
  std::string id = request.inference_id;
  auto shared = std::make_shared<GenerateDone>(std::move(done));
  AcquireAdmission(std::move(request), std::make_unique<AdmissionSink>(shared),
                   [this, shared](OffloadRequest admitted, LocalWorkerAdmission ticket, std::unique_ptr<StreamSink>) {
                     GenerateAdmitted(std::move(admitted), std::move(ticket), std::move(*shared));
                   });
  return id;
}

std::string LocalGenerationOffload::Stream(OffloadRequest request, std::unique_ptr<StreamSink> sink) {
  if (request.inference_id.empty()) request.inference_id = NewInferenceId();
  std::string id = request.inference_id;
  AcquireAdmission(
      std::move(request), std::move(sink),
      [this](OffloadRequest admitted, LocalWorkerAdmission ticket, std::unique_ptr<StreamSink> admitted_sink) {
        StreamAdmitted(std::move(admitted), std::move(ticket), std::move(admitted_sink));
      });
  return id;
}

bool LocalGenerationOffload::Cancel(std::string_view, CancelCause) { return false; }
bool LocalGenerationOffload::Pause(std::string_view, bool) { return false; }

void LocalGenerationOffload::TerminateInference(std::string_view, std::function<void(InferenceTerminationAck)> done) {
  done({});
}

std::vector<uid_t> LocalGenerationOffload::OthersInProcessOf(std::string_view) const { return {}; }

void LocalGenerationOffload::ReleaseModel(std::string_view, ReleaseOptions,
                                          std::function<void(absl::StatusOr<bool>)> done) {
  done(false);
}

void LocalGenerationOffload::ReleaseIdleModels(std::chrono::nanoseconds, std::function<void(ReleaseIdleResult)> done) {
  done({});
}

std::string LocalGenerationOffload::Load(LoadSpec, LoadProgress, std::function<void(absl::StatusOr<LoadResult>)> done) {
  done(NotHere("load"));
  return {};
}

bool LocalGenerationOffload::SetPinned(std::string_view, bool) { return false; }

void LocalGenerationOffload::Inspect(ModelSource, std::function<void(absl::StatusOr<v1::Manifest>)> done) {
  done(NotHere("inspect"));
}

void LocalGenerationOffload::Preflight(LoadSpec, std::function<void(absl::StatusOr<PreflightReport>)> done) {
  done(NotHere("preflight"));
}

void LocalGenerationOffload::Tokenize(TokenizeSpec, std::function<void(absl::StatusOr<std::vector<int32_t>>)> done) {
  done(NotHere("tokenize"));
}

void LocalGenerationOffload::RefreshResourcePolicy(uint64_t) {}
bool LocalGenerationOffload::Unblock(std::string_view) { return false; }
void LocalGenerationOffload::MeasureMaps(std::function<void()> done) { done(); }
std::vector<ResidentModel> LocalGenerationOffload::ResidentModels() const { return {}; }
std::optional<std::string> LocalGenerationOffload::ResidentAllocationId(std::string_view) const { return std::nullopt; }
std::vector<RequestInfo> LocalGenerationOffload::Requests() const { return {}; }
std::optional<RequestInfo> LocalGenerationOffload::FindRequest(std::string_view) const { return std::nullopt; }
BudgetSnapshot LocalGenerationOffload::Budget() const { return {}; }
std::vector<v1::Death> LocalGenerationOffload::Deaths() const { return {}; }
bool LocalGenerationOffload::Blocked(std::string_view) const { return false; }
void LocalGenerationOffload::Shutdown(std::chrono::milliseconds, std::function<void()> done) { done(); }

}  // namespace bulkhead::supervisor
