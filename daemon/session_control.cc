// Sessions: the daemon itself. Answers come from snapshots; nothing here waits for a worker.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "daemon/log.h"
#include "daemon/memory_warnings.h"
#include "daemon/reply.h"
#include "daemon/session_request.h"

namespace bulkhead::daemon {

void Session::OnPs(Ref ref, const v1::PsRequest& request) {
  if (!request.memory()) return AnswerPs(ref, request);
  services_.offload.MeasureMaps(
      [answer = Guarded(ref, [ref, request](Session& self) { self.AnswerPs(ref, request); })] { answer(); });
}

void Session::AnswerPs(Ref ref, const v1::PsRequest& request) {
  v1::ServerFrame frame;
  v1::PsReply* reply = frame.mutable_ps();
  std::vector<supervisor::ResidentModel> seen = services_.offload.ResidentModels();
  std::erase_if(seen, [this](const supervisor::ResidentModel& model) { return !MaySee(model.model); });
  for (const supervisor::ResidentModel& model : seen) Fill(reply->add_models(), model);
  if (request.memory()) {
    for (std::string& warning : MemoryWarnings(seen)) reply->add_warnings(std::move(warning));
  }
  if (request.requests()) {
    for (const supervisor::RequestInfo& info : services_.offload.Requests()) {
      if (info.uid == peer_.uid || IsAdmin()) Fill(reply->add_requests(), info);
    }
  }
  Fill(reply->mutable_budget(), services_.offload.Budget());
  Reply(ref, std::move(frame));
}

void Session::OnDeaths(Ref ref, const v1::DeathsRequest& request) {
  std::vector<v1::Death> deaths = services_.offload.Deaths();
  if (request.death_id() != 0) {
    std::erase_if(deaths, [&](const v1::Death& death) { return death.death_id() != request.death_id(); });
  }
  if (request.last() != 0 && deaths.size() > request.last()) {
    deaths.erase(deaths.begin(), deaths.end() - static_cast<ptrdiff_t>(request.last()));
  }
  v1::ServerFrame frame;
  v1::DeathsReply* reply = frame.mutable_deaths();
  for (v1::Death& death : deaths) {
    // The last words of a process that served several users may hold any of their text.
    if (!IsAdmin()) death.clear_stderr_tail();
    *reply->add_deaths() = std::move(death);
  }
  Reply(ref, std::move(frame));
}

void Session::OnPolicy(Ref ref, const v1::PolicyRequest& request) {
  if (!request.set().empty()) {
    absl::Status status = RequireAdmin("policy");
    std::vector<Setting> settings;
    for (const auto& [name, value] : request.set()) {
      settings.push_back({name, {value}, false, fmt::format("uid {}", peer_.uid), kFromRuntime});
    }
    if (status.ok()) status = services_.control.SetPolicy(settings);
    if (!status.ok()) return Fail(ref, status);
  }
  v1::ServerFrame frame;
  v1::PolicyReply* reply = frame.mutable_policy();
  reply->set_generation(services_.control.generation());
  for (const ShownSetting& shown : Show(services_.control.loaded())) {
    v1::PolicyValue* value = reply->add_values();
    value->set_name(shown.name);
    value->set_value(shown.text);
    value->set_source(std::string(shown.source));
    value->set_origin(shown.origin);
  }
  Reply(ref, std::move(frame));
}

void Session::OnDoctor(Ref ref) {
  services_.control.Doctor(Guarded(ref, [ref](Session& self, const v1::DoctorReply& findings) {
    v1::ServerFrame frame;
    *frame.mutable_doctor() = findings;
    self.Reply(ref, std::move(frame));
  }));
}

void Session::OnEvents(Ref ref, const v1::EventsRequest& request) {
  Find(ref)->subscription = services_.events.Subscribe(
      Guarded(ref, [ref, model = request.model()](Session& self, const supervisor::LifecycleEvent& event) {
        const bool others = event.uid && *event.uid != self.peer_.uid && !self.IsAdmin();
        if (others || !self.MaySee(event.model) || (!model.empty() && event.model != model)) return;
        self.SendEvent(ref, event);
      }));
}

// Whoever does not read loses lines rather than making the daemon keep them.
void Session::SendEvent(Ref ref, const supervisor::LifecycleEvent& event) {
  uint64_t& lost = Find(ref)->events_lost;
  if (Congested()) {
    ++lost;
    return;
  }
  v1::ServerFrame frame;
  if (lost > 0) {
    frame.mutable_event()->set_at_unix_ns(services_.clock.Wall().count());
    frame.mutable_event()->set_what("lost");
    frame.mutable_event()->set_detail(fmt::format("{}", std::exchange(lost, 0)));
    Send(frame, ref.id);
  }
  Fill(frame.mutable_event(), event);
  Send(frame, ref.id);
}

void Session::OnReload(Ref ref) {
  if (absl::Status denied = RequireAdmin("reload"); !denied.ok()) return Fail(ref, denied);
  services_.control.Reload(Guarded(ref, [ref](Session& self, const absl::Status& status) {
    if (!status.ok()) return self.Fail(ref, status);
    v1::ServerFrame frame;
    frame.mutable_reload()->set_generation(self.services_.control.generation());
    self.Reply(ref, std::move(frame));
  }));
}

}  // namespace bulkhead::daemon
