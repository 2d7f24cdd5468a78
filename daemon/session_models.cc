// Sessions: models.
#include <fmt/format.h>

#include <set>

#include "daemon/log.h"
#include "daemon/reply.h"
#include "daemon/session_request.h"

namespace bulkhead::daemon {

void Session::WithModel(Ref ref, const v1::ModelRef& model, UniqueFd descriptor, ModelReady ready) {
  if (model.kind_case() == v1::ModelRef::kPassed) {
    if (!descriptor.valid()) {
      return Fail(ref, Error(Reason::kInvalidRequest, "model.passed: no descriptor came with the frame"));
    }
    if (const auto identity = CheckPassedFile(descriptor.get()); !identity.ok()) return Fail(ref, identity.status());
    if (absl::Status scarce = services_.descriptors.CheckFile(descriptor.get()); !scarce.ok()) return Fail(ref, scarce);
    std::string name = supervisor::PassedModelName(descriptor.get(), peer_.uid);
    return ready(*this, {std::move(name), std::make_shared<const UniqueFd>(std::move(descriptor)), true, peer_.uid});
  }
  if (model.name().empty()) return Fail(ref, Error(Reason::kInvalidRequest, "model: no name given"));
  services_.catalogue.Open(
      model.name(), Guarded(ref, [ref, ready = std::move(ready)](Session& self, absl::StatusOr<OpenedModel> opened) {
        if (!opened.ok()) return self.Fail(ref, opened.status());
        absl::Status scarce = self.services_.descriptors.CheckFile(opened->file->get());
        if (!scarce.ok()) return self.Fail(ref, scarce);
        ready(self, {opened->name, opened->file, false, 0});
      }));
}

void Session::OnLoad(Ref ref, ReceivedFrame& received) {
  const v1::LoadRequest& request = received.frame.load();
  if (services_.control.stopping()) return Fail(ref, Error(Reason::kShuttingDown, "the daemon is stopping"));
  if (request.pin()) {
    if (absl::Status denied = RequireAdmin("pin"); !denied.ok()) return Fail(ref, denied);
  }
  supervisor::LoadSpec spec;
  spec.context = request.context();
  spec.sequences = request.sequences();
  spec.pin = request.pin();
  spec.queue_deadline = std::chrono::milliseconds(std::min<uint64_t>(request.queue_ms(), 1ull << 40));
  spec.uid = peer_.uid;
  WithModel(ref, request.model(), std::move(received.descriptor),
            [ref, spec](Session& self, supervisor::ModelSource model) {
              supervisor::LoadSpec full = spec;
              full.model = std::move(model);
              const auto progress = self.Guarded(ref, [ref](Session& session, const supervisor::LoadingEvent& event) {
                v1::ServerFrame frame;
                Fill(frame.mutable_loading(), event);
                session.Send(frame, ref.id);
              });
              const auto done =
                  self.Guarded(ref, [ref](Session& session, const absl::StatusOr<supervisor::LoadResult>& result) {
                    session.Find(ref)->load_id.clear();
                    if (!result.ok()) return session.Fail(ref, result.status());
                    v1::ServerFrame frame;
                    Fill(frame.mutable_load(), *result);
                    session.Reply(ref, std::move(frame));
                  });
              std::string id = self.services_.offload.Load(std::move(full), progress, done);
              if (Request* open = self.Find(ref)) open->load_id = std::move(id);
            });
}

// One release of several models; answers when the last is settled.
struct Session::PendingRelease {
  v1::ServerFrame reply;
  absl::Status failure;
  size_t open = 0;
};

void Session::OnRelease(Ref ref, const v1::ReleaseRequest& request) {
  std::set<std::string> names(request.models().begin(), request.models().end());
  bool only_own = !names.empty() && !request.all() && !request.has_idle_for_ms();
  for (const std::string& name : names) only_own = only_own && OwnsPassed(name);
  if (absl::Status denied = RequireAdmin("release"); !only_own && !denied.ok()) return Fail(ref, denied);
  if (request.has_idle_for_ms()) {
    return ReleaseIdle(ref, std::chrono::milliseconds(std::min<uint64_t>(request.idle_for_ms(), 1ull << 40)));
  }
  if (request.all()) {
    for (const supervisor::ResidentModel& model : services_.offload.ResidentModels()) names.insert(model.model);
  }
  supervisor::ReleaseOptions options;
  options.force = request.force();
  const auto drain = request.drain_ms() != 0 ? Duration(std::chrono::milliseconds(request.drain_ms() & 0xFFFFFFFF))
                                             : services_.control.loaded().config.deadlines.drain;
  options.drain = std::chrono::duration_cast<std::chrono::milliseconds>(drain);
  auto pending = std::make_shared<PendingRelease>();
  pending->reply.mutable_release();
  pending->open = names.size();
  if (names.empty()) return Reply(ref, pending->reply);
  for (const std::string& name : names) {
    services_.offload.ReleaseModel(
        name, options, Guarded(ref, [ref, name, pending](Session& self, const absl::StatusOr<bool>& released) {
          v1::ReleaseReply* reply = pending->reply.mutable_release();
          if (!released.ok() && ReasonOf(released.status()) == Reason::kPendingTeardown) {
            reply->add_unconfirmed(name);
          } else if (!released.ok()) {
            pending->failure = released.status();
          } else {
            *(*released ? reply->add_released() : reply->add_not_resident()) = name;
          }
          if (--pending->open > 0) return;
          if (!pending->failure.ok()) return self.Fail(ref, pending->failure);
          self.Reply(ref, pending->reply);
        }));
  }
}

void Session::ReleaseIdle(Ref ref, Duration idle_for) {
  services_.offload.ReleaseIdleModels(idle_for,
                                      Guarded(ref, [ref](Session& self, const supervisor::ReleaseIdleResult& result) {
                                        v1::ServerFrame frame;
                                        v1::ReleaseReply* reply = frame.mutable_release();
                                        for (const std::string& name : result.released) reply->add_released(name);
                                        for (const std::string& name : result.unconfirmed) reply->add_unconfirmed(name);
                                        self.Reply(ref, std::move(frame));
                                      }));
}

void Session::OnModels(Ref ref) {
  services_.catalogue.Rescan(Guarded(ref, [ref](Session& self, const std::shared_ptr<const ModelScan>& scan) {
    std::map<std::string, bool> resident;  // name -> pinned
    for (const supervisor::ResidentModel& model : self.services_.offload.ResidentModels()) {
      resident[model.model] = model.pinned;
    }
    v1::ServerFrame frame;
    v1::ModelsReply* reply = frame.mutable_models();
    for (const FoundModel& found : scan->models) {
      v1::CatalogModel* model = reply->add_models();
      model->set_model(found.name);
      model->set_path(found.path);
      model->set_file_bytes(found.identity.size);
      model->set_modified_unix_ns(found.identity.modified_unix_ns);
      model->set_problem(found.problem);
      const auto live = resident.find(found.name);
      model->set_resident(live != resident.end());
      model->set_pinned(live != resident.end() && live->second);
      model->set_blocked(self.services_.offload.Blocked(found.name));
    }
    for (const std::string& problem : scan->problems) reply->add_problems(problem);
    self.Reply(ref, std::move(frame));
  }));
}

void Session::OnShow(Ref ref, ReceivedFrame& received) {
  WithModel(ref, received.frame.show().model(), std::move(received.descriptor),
            [ref](Session& self, supervisor::ModelSource model) {
              const std::string name = model.name;
              self.services_.offload.Inspect(
                  std::move(model),
                  self.Guarded(ref, [ref, name](Session& session, const absl::StatusOr<v1::Manifest>& manifest) {
                    if (!manifest.ok()) return session.Fail(ref, manifest.status());
                    const Config::Model& defaults = session.services_.control.loaded().config.model;
                    v1::ServerFrame frame;
                    v1::ShowReply* reply = frame.mutable_show();
                    reply->set_model(name);
                    *reply->mutable_manifest() = *manifest;
                    const uint32_t trained = manifest->trained_context();
                    reply->set_default_context(trained == 0 ? defaults.context : std::min(trained, defaults.context));
                    reply->set_default_sequences(defaults.sequences);
                    session.Reply(ref, std::move(frame));
                  }));
            });
}

void Session::OnPreflight(Ref ref, ReceivedFrame& received) {
  supervisor::LoadSpec spec;
  spec.context = received.frame.preflight().context();
  spec.sequences = received.frame.preflight().sequences();
  spec.uid = peer_.uid;
  WithModel(ref, received.frame.preflight().model(), std::move(received.descriptor),
            [ref, spec](Session& self, supervisor::ModelSource model) {
              supervisor::LoadSpec full = spec;
              full.model = std::move(model);
              self.services_.offload.Preflight(
                  std::move(full),
                  self.Guarded(ref, [ref](Session& session, const absl::StatusOr<supervisor::PreflightReport>& report) {
                    if (!report.ok()) return session.Fail(ref, report.status());
                    v1::ServerFrame frame;
                    Fill(frame.mutable_preflight(), *report);
                    session.Reply(ref, std::move(frame));
                  }));
            });
}

void Session::OnTokenize(Ref ref, ReceivedFrame& received) {
  const v1::TokenizeRequest& request = received.frame.tokenize();
  supervisor::TokenizeSpec spec;
  spec.text = request.text();
  spec.add_special = request.add_special();
  spec.parse_special = request.parse_special();
  spec.uid = peer_.uid;
  WithModel(ref, request.model(), std::move(received.descriptor),
            [ref, spec](Session& self, supervisor::ModelSource model) {
              supervisor::TokenizeSpec full = spec;
              full.model = std::move(model);
              self.services_.offload.Tokenize(
                  std::move(full),
                  self.Guarded(ref, [ref](Session& session, const absl::StatusOr<std::vector<int32_t>>& ids) {
                    if (!ids.ok()) return session.Fail(ref, ids.status());
                    v1::ServerFrame frame;
                    frame.mutable_tokenize()->mutable_ids()->Add(ids->begin(), ids->end());
                    session.Reply(ref, std::move(frame));
                  }));
            });
}

void Session::OnUnblock(Ref ref, const v1::UnblockRequest& request) {
  if (absl::Status denied = RequireAdmin("unblock"); !OwnsPassed(request.model()) && !denied.ok()) {
    return Fail(ref, denied);
  }
  v1::ServerFrame frame;
  frame.mutable_unblock()->set_was_blocked(services_.offload.Unblock(request.model()));
  Reply(ref, std::move(frame));
}

}  // namespace bulkhead::daemon
