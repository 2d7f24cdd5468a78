// What an earlier daemon left running is taken up again.
#include <fmt/format.h>
#include <malloc.h>

#include "base/numerics_version.h"
#include "daemon/generate_request.h"
#include "daemon/log.h"
#include "daemon/manager.h"
#include "supervisor/file_identity.h"

namespace bulkhead::daemon {
namespace {

// The limit its first worker had; another one's context may be larger.
void LimitAsBefore(const v1::Started& started, supervisor::OffloadRequest& request) {
  const uint32_t room = started.context() - std::min(started.context(), started.prompt_tokens());
  request.context = started.context();
  request.max_tokens = request.max_tokens == 0 ? room : std::min(request.max_tokens, room);
}

}  // namespace

void Manager::OpenRecords(UniqueFd earlier, bool keep) {
  if (earlier.valid()) {
    auto adopted = RecordStore::Adopt(std::move(earlier), &recorded_);
    if (adopted.ok()) {
      records_ = *std::move(adopted);
      return;
    }
    LogWarning(fmt::format("requests of the daemon before this one are lost: {}", Message(adopted.status())));
  }
  if (!keep) return;
  auto created = RecordStore::Create();
  if (created.ok()) {
    if (const absl::Status kept = ServiceManager::Keep((*created)->fd()); kept.ok()) {
      records_ = *std::move(created);
      return;
    } else {
      created = kept;
    }
  }
  LogWarning(fmt::format("requests will not outlive this daemon: {}", Message(created.status())));
}

void Manager::RestoreRequests() {
  const std::vector<RecordedRequest> requests = std::exchange(recorded_.requests, {});
  if (!requests.empty()) LogInfo(fmt::format("{} requests outlived the daemon before this one", requests.size()));
  for (const RecordedRequest& recorded : requests) RestoreRequest(recorded);
  inferences_->ExpireDue();
  // The log as messages is many times what is left of it.
  malloc_trim(0);
}

void Manager::RestoreRequest(RecordedRequest recorded) {
  const bool exact = recorded.numerics == kNumericsVersion;
  const bool ended = recorded.terminal.has_value();
  auto request = CheckGenerate(recorded.request, recorded.uid, clock_, std::chrono::hours(24 * 366));
  if (request.ok()) {
    if (recorded.started) LimitAsBefore(*recorded.started, *request);
    for (const v1::Delta& delta : recorded.deltas) {
      for (const v1::Token& token : delta.tokens()) request->resume_ids.push_back(token.id());
    }
    request->resumes = recorded.resumes + (recorded.started ? 1 : 0);
  }
  const std::string model = recorded.request.model().name();
  const admission::FileIdentity file = recorded.file;
  const uint32_t numerics = recorded.numerics;
  const bool began = !recorded.deltas.empty();
  const std::shared_ptr<Inference> inference = inferences_->Restore(std::move(recorded), exact);
  if (ended) return;
  if (!request.ok()) return inference->Abandon(supervisor::OffloadError::Of(request.status()));
  if (began && !exact && request->require_exact) {
    return inference->Abandon(supervisor::OffloadError::Of(
        Reason::kWorkerBuildMismatch,
        fmt::format("{}: began with numerics {}, this daemon has {}, and require_exact is set", inference->id(),
                    numerics, kNumericsVersion)));
  }
  catalogue_.Open(model, [this, inference, file, request = *std::move(request)](absl::StatusOr<OpenedModel> opened) {
    if (!opened.ok()) return inference->Abandon(supervisor::OffloadError::Of(opened.status()));
    const auto identity = supervisor::IdentityOf(opened->file->get());
    if (!identity.ok() || *identity != file) {
      return inference->Abandon(supervisor::OffloadError::Of(
          Reason::kModelFileChanged,
          fmt::format("model {}: the file is not the one the request began with", opened->name)));
    }
    if (stopping_) {
      return inference->Abandon(supervisor::OffloadError::Of(Reason::kShuttingDown, "the daemon is stopping"));
    }
    supervisor::OffloadRequest resumed = request;
    resumed.model = {opened->name, opened->file, false, 0};
    inferences_->Resume(*inference, std::move(resumed));
  });
}

}  // namespace bulkhead::daemon
