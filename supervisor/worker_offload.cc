#include "supervisor/worker_offload.h"

#include <fmt/format.h>

#include <utility>

#include "supervisor/supervisor.h"

namespace bulkhead::supervisor {
namespace {

// Gathers a stream into one result.
class CollectingSink final : public StreamSink {
 public:
  explicit CollectingSink(LocalGenerationOffload::GenerateDone done) : done_(std::move(done)) {}
  void OnStarted(const StartedEvent& event) override {
    result_.inference_id = event.inference_id;
    result_.allocation_id = event.allocation_id;
    result_.seed = event.seed;
    result_.context = event.context;
  }
  void OnDelta(const DeltaEvent& delta) override {
    result_.text += delta.text;
    result_.tokens.insert(result_.tokens.end(), delta.tokens.begin(), delta.tokens.end());
  }
  void OnDone(const DoneEvent& done) override {
    result_.done = done;
    // A worker keeps its model until it is released.
    result_.weights_resident = !result_.allocation_id.empty();
    done_(std::move(result_));
  }
  void OnError(const OffloadError& error) override { done_(error); }

 private:
  LocalGenerationOffload::GenerateDone done_;
  LocalOffloadResult result_;
};

// The other two kinds of request hear of their end through a sink as well: what went well is told elsewhere.
class StatusSink final : public StreamSink {
 public:
  StatusSink(std::function<void(const absl::Status&)> failed, LocalGenerationOffload::LoadProgress progress)
      : failed_(std::move(failed)), progress_(std::move(progress)) {}
  void OnLoading(const LoadingEvent& event) override {
    if (progress_) progress_(event);
  }
  void OnDelta(const DeltaEvent&) override {}
  void OnDone(const DoneEvent& done) override {
    if (done.finish_reason == v1::FINISH_REASON_CANCELLED) failed_(Error(Reason::kCancelled, "cancelled"));
  }
  void OnError(const OffloadError& error) override { failed_(error.ToStatus()); }

 private:
  std::function<void(const absl::Status&)> failed_;
  LocalGenerationOffload::LoadProgress progress_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerOffload>> WorkerOffload::Create(Options options) {
  if (options.loop == nullptr || options.launcher == nullptr || options.memory == nullptr) {
    return Error(Reason::kInternal, "offload: loop, launcher and memory probe are needed");
  }
  return std::unique_ptr<WorkerOffload>(new WorkerOffload(std::make_unique<Supervisor>(std::move(options))));
}

WorkerOffload::WorkerOffload(std::unique_ptr<Supervisor> supervisor) : supervisor_(std::move(supervisor)) {}
WorkerOffload::~WorkerOffload() = default;

void WorkerOffload::SetSettings(const SupervisionSettings& settings) { supervisor_->SetSettings(settings); }
std::string WorkerOffload::Degraded() const { return supervisor_->Degraded(); }
ResourceReport WorkerOffload::Resources() const { return supervisor_->Resources(); }
void WorkerOffload::MeasureMaps(std::function<void()> done) { supervisor_->MeasureMaps(std::move(done)); }
void WorkerOffload::RunDueTimers() { supervisor_->loop().RunDue(); }

void WorkerOffload::AcquireAdmission(OffloadRequest request, std::unique_ptr<StreamSink> sink, Admitted admitted) {
  auto inference = supervisor_->NewInference(RequestKind::kGenerate);
  if (request.inference_id.empty()) request.inference_id = NewInferenceId();
  inference->id = request.inference_id;
  inference->ids = std::move(request.resume_ids);
  inference->replay.attempts = request.resumes;
  inference->replay.died_at = inference->ids.size();
  inference->request = std::move(request);
  inference->sink = std::move(sink);
  inference->admitted = std::move(admitted);
  supervisor_->Accept(std::move(inference));
}

void WorkerOffload::GenerateAdmitted(OffloadRequest request, LocalWorkerAdmission ticket, GenerateDone done) {
  supervisor_->Run(std::move(request), std::move(ticket), std::make_shared<CollectingSink>(std::move(done)));
}

void WorkerOffload::StreamAdmitted(OffloadRequest request, LocalWorkerAdmission ticket,
                                   std::unique_ptr<StreamSink> sink) {
  supervisor_->Run(std::move(request), std::move(ticket), std::move(sink));
}

bool WorkerOffload::Cancel(std::string_view inference_id, CancelCause cause) {
  switch (cause) {
    case CancelCause::kOther:
      return supervisor_->Cancel(inference_id, EndCause::kOther);
    case CancelCause::kClientStalled:
      return supervisor_->Cancel(inference_id, EndCause::kClientStalled);
    case CancelCause::kOwner:
    case CancelCause::kClientGone:
      break;
  }
  return supervisor_->Cancel(inference_id, EndCause::kOwner);
}

bool WorkerOffload::Pause(std::string_view inference_id, bool paused) {
  return supervisor_->Pause(inference_id, paused);
}

void WorkerOffload::TerminateInference(std::string_view inference_id,
                                       std::function<void(InferenceTerminationAck)> done) {
  supervisor_->Terminate(inference_id, std::move(done));
}

std::vector<uid_t> WorkerOffload::OthersInProcessOf(std::string_view inference_id) const {
  return supervisor_->OthersInProcessOf(inference_id);
}

void WorkerOffload::ReleaseModel(std::string_view model, ReleaseOptions options,
                                 std::function<void(absl::StatusOr<bool>)> done) {
  supervisor_->Release(model, options, std::move(done));
}

void WorkerOffload::ReleaseIdleModels(std::chrono::nanoseconds idle_for, std::function<void(ReleaseIdleResult)> done) {
  supervisor_->ReleaseIdle(idle_for, std::move(done));
}

std::string WorkerOffload::Load(LoadSpec spec, LoadProgress progress,
                                std::function<void(absl::StatusOr<LoadResult>)> done) {
  auto inference = supervisor_->NewInference(RequestKind::kLoad);
  const std::string id = NewInferenceId();
  inference->id = id;
  inference->request.inference_id = id;
  inference->request.model = std::move(spec.model);
  inference->request.context = spec.context;
  inference->request.queue_deadline = spec.queue_deadline;
  inference->request.uid = spec.uid;
  inference->sequences = spec.sequences;
  inference->pin = spec.pin;
  inference->loaded = [done](const LoadResult& result) { done(result); };
  inference->sink =
      std::make_shared<StatusSink>([done](const absl::Status& status) { done(status); }, std::move(progress));
  supervisor_->Accept(std::move(inference));
  return id;
}

bool WorkerOffload::SetPinned(std::string_view model, bool pinned) { return supervisor_->SetPinned(model, pinned); }

void WorkerOffload::Inspect(ModelSource model, std::function<void(absl::StatusOr<v1::Manifest>)> done) {
  supervisor_->Inspect(model, std::move(done));
}

void WorkerOffload::Preflight(LoadSpec spec, std::function<void(absl::StatusOr<PreflightReport>)> done) {
  supervisor_->Preflight(spec, std::move(done));
}

void WorkerOffload::Tokenize(TokenizeSpec spec, std::function<void(absl::StatusOr<std::vector<int32_t>>)> done) {
  auto inference = supervisor_->NewInference(RequestKind::kTokenize);
  inference->id = NewInferenceId();
  inference->request.inference_id = inference->id;
  inference->request.model = std::move(spec.model);
  inference->request.uid = spec.uid;
  inference->request.input = std::move(spec.text);
  inference->add_special = spec.add_special;
  inference->parse_special = spec.parse_special;
  inference->tokenized = [done](std::vector<int32_t> ids) { done(std::move(ids)); };
  inference->sink = std::make_shared<StatusSink>([done](const absl::Status& status) { done(status); }, nullptr);
  supervisor_->Accept(std::move(inference));
}

void WorkerOffload::RefreshResourcePolicy(uint64_t generation) { supervisor_->RefreshPolicy(generation); }
bool WorkerOffload::Unblock(std::string_view model) { return supervisor_->Unblock(model); }
std::vector<ResidentModel> WorkerOffload::ResidentModels() const { return supervisor_->Residents(); }

std::optional<std::string> WorkerOffload::ResidentAllocationId(std::string_view model) const {
  return supervisor_->ResidentAllocationId(model);
}

std::vector<RequestInfo> WorkerOffload::Requests() const { return supervisor_->Requests(); }

std::optional<RequestInfo> WorkerOffload::FindRequest(std::string_view inference_id) const {
  return supervisor_->FindRequest(inference_id);
}

BudgetSnapshot WorkerOffload::Budget() const { return supervisor_->Budget(); }
std::vector<v1::Death> WorkerOffload::Deaths() const { return supervisor_->Deaths(); }
bool WorkerOffload::Blocked(std::string_view model) const { return supervisor_->Blocked(model); }

void WorkerOffload::Shutdown(std::chrono::milliseconds drain, std::function<void()> done) {
  supervisor_->Shutdown(drain, std::move(done));
}

}  // namespace bulkhead::supervisor
