// Models rather than requests: headers, preflight, pins, breakers.
#include <utility>

#include "supervisor/file_identity.h"
#include "supervisor/model_facts.h"
#include "supervisor/refusal.h"
#include "supervisor/supervisor.h"

namespace bulkhead::supervisor {

void Supervisor::Inspect(const ModelSource& model, std::function<void(absl::StatusOr<v1::Manifest>)> done) {
  const auto identity = IdentityOf(model.file == nullptr ? -1 : model.file->get());
  if (!identity.ok()) {
    loop_.Post([done = std::move(done), status = identity.status()] { done(status); });
    return;
  }
  if (const size_t waiting = inspector_.waiting(); waiting >= settings_.queue.total) {
    loop_.Post([done = std::move(done), full = QueueFull("headers to be read", waiting, settings_.queue.total)] {
      done(full.ToStatus());
    });
    return;
  }
  inspector_.Inspect(model.file, *identity, [this, done = std::move(done)](const Inspector::Result& result) {
    if (result.ok()) {
      done(**result);
    } else {
      done(result.status());
    }
    CheckShutdown();
  });
}

void Supervisor::Preflight(const LoadSpec& spec, std::function<void(absl::StatusOr<PreflightReport>)> done) {
  Inspect(spec.model, [this, spec, done = std::move(done)](const absl::StatusOr<v1::Manifest>& manifest) {
    if (!manifest.ok()) return done(manifest.status());
    const auto identity = IdentityOf(spec.model.file->get());
    if (!identity.ok()) return done(identity.status());
    SampleMemory();
    admission::AdmitRequest ask;
    ask.facts = FactsOf(*manifest, spec.model.name, *identity, settings_);
    ask.context = spec.context;
    ask.sequences = spec.sequences;
    ask.exact_shape = spec.context != 0 || spec.sequences != 0;
    const admission::PreflightReport said = Coordinator().Preflight(ask);
    PreflightReport report;
    report.verdict = std::string(admission::NameOf(said.verdict));
    for (const auto& line : said.lines) report.lines.push_back({line.what, line.bytes, line.note});
    report.context = said.shape.context;
    report.sequences = said.shape.sequences;
    report.estimate_bytes = said.estimate.Total();
    for (const admission::AllocationId number : said.would_release) {
      if (const Held* held = FindHeld(number)) report.would_release.push_back(held->process->plan().model);
    }
    done(report);
  });
}

bool Supervisor::SetPinned(std::string_view model, bool pinned) {
  const bool resident = coordinator_->Resident(model) != 0;
  if (resident || !pinned) Coordinator().SetPinned(model, pinned);
  ArmIdleSweep();
  return resident;
}

bool Supervisor::Unblock(std::string_view name) {
  const auto found = models_.find(name);
  if (found == models_.end()) return false;
  const bool was_open = found->second.breaker.Reset();
  Coordinator().SetBlocked(name, admission::Verdict::kAllowed);
  models_.erase(found);
  return was_open;
}

bool Supervisor::Blocked(std::string_view name) const {
  const auto found = models_.find(name);
  return found != models_.end() && found->second.breaker.state() == Breaker::State::kOpen;
}

}  // namespace bulkhead::supervisor
