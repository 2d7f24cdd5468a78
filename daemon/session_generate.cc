// Sessions: generations, and the verbs on them.
#include <fmt/format.h>

#include <algorithm>

#include "daemon/generate_request.h"
#include "daemon/log.h"
#include "daemon/reply.h"
#include "daemon/session_request.h"

namespace bulkhead::daemon {
namespace {

v1::ServerFrame Cancelled() {
  v1::ServerFrame frame;
  frame.mutable_done()->set_finish_reason(v1::FINISH_REASON_CANCELLED);
  return frame;
}

}  // namespace

struct Session::PendingGenerate {
  supervisor::OffloadRequest request;
  Inference::Traits traits;
  v1::ModelRef model;
  UniqueFd descriptor;
  uint64_t fingerprint = 0;
  std::unique_ptr<IdempotencyKeys::Claim> claim;
};

void Session::OnGenerate(Ref ref, ReceivedFrame& received) {
  const v1::GenerateRequest& request = received.frame.generate();
  const Config& config = services_.control.loaded().config;
  Find(ref)->generating = true;
  if (services_.control.stopping()) return Fail(ref, Error(Reason::kShuttingDown, "the daemon is stopping"));
  auto checked = CheckGenerate(request, peer_.uid, services_.clock, config.limits.linger);
  if (!checked.ok()) return Fail(ref, checked.status());
  auto bytes =
      services_.uids.Take(peer_.uid, UidResource::kReceivedBytes, received.bytes, config.limits.received_bytes_per_uid);
  if (!bytes.ok()) return Fail(ref, bytes.status());
  auto pending = std::make_shared<PendingGenerate>();
  pending->request = *std::move(checked);
  pending->traits.linger = std::chrono::milliseconds(request.linger_ms());
  pending->traits.idempotency_key = request.idempotency_key();
  pending->traits.received_bytes = *std::move(bytes);
  pending->model = request.model();
  pending->descriptor = std::move(received.descriptor);
  if (request.idempotency_key().empty()) return LookUpModel(ref, std::move(pending));
  // A key without a time to come back in would be forgotten with the connection it is there to survive.
  pending->traits.linger = std::max(pending->traits.linger, config.limits.idempotency);
  const bool passed = pending->descriptor.valid();
  pending->fingerprint =
      FingerprintOf(request, passed ? supervisor::PassedModelName(pending->descriptor.get(), peer_.uid) : "");
  LookUpKey(ref, std::move(pending));
}

void Session::LookUpKey(Ref ref, std::shared_ptr<PendingGenerate> pending) {
  IdempotencyKeys& keys = services_.inferences.keys();
  const std::string& key = pending->traits.idempotency_key;
  auto use = keys.Look(peer_.uid, key, pending->fingerprint);
  if (!use.ok()) return Fail(ref, use.status());
  if (use->claim != nullptr) {
    pending->claim = std::move(use->claim);
    return LookUpModel(ref, std::move(pending));
  }
  if (auto known = services_.inferences.Find(use->inference_id)) return ListenTo(ref, std::move(known), 0);
  keys.Wait(peer_.uid, key, Guarded(ref, [ref, pending](Session& self) { self.LookUpKey(ref, pending); }));
}

void Session::LookUpModel(Ref ref, std::shared_ptr<PendingGenerate> pending) {
  const v1::ModelRef& model = pending->model;
  UniqueFd descriptor = std::move(pending->descriptor);
  WithModel(ref, model, std::move(descriptor),
            [ref, pending = std::move(pending)](Session& self, supervisor::ModelSource source) {
              pending->request.model = std::move(source);
              self.StartGenerate(ref, *pending);
            });
}

void Session::StartGenerate(Ref ref, PendingGenerate& pending) {
  if (services_.control.stopping()) return Fail(ref, Error(Reason::kShuttingDown, "the daemon is stopping"));
  Request* request = Find(ref);
  pending.traits.in_flight = request->TakeSlot();
  request->inference = services_.inferences.Start(std::move(pending.request), std::move(pending.traits), request);
  if (request->early_grant) request->inference->Grant(*request->early_grant);
  LogInfo(fmt::format("{} accepted: model {} uid {} pid {}", request->inference->id(), request->inference->model(),
                      peer_.uid, peer_.pid));
  if (pending.claim != nullptr) pending.claim->Begun(request->inference->id());
}

void Session::OnAttach(Ref ref, const v1::AttachRequest& request) {
  Find(ref)->generating = true;
  std::shared_ptr<Inference> inference = services_.inferences.Find(request.inference_id());
  // Another user's inference does not exist for this one.
  if (inference == nullptr || inference->uid() != peer_.uid) {
    return Fail(ref, Error(Reason::kInferenceNotFound, "attach: no inference of that id belongs to this user"));
  }
  if (!inference->lingers() && !inference->restored()) {
    return Fail(ref, Error(Reason::kInvalidRequest, fmt::format("{}: was not begun with linger_ms", inference->id())));
  }
  ListenTo(ref, std::move(inference), request.from_index());
}

void Session::ListenTo(Ref ref, std::shared_ptr<Inference> inference, uint64_t from_index) {
  Request* request = Find(ref);
  request->inference = inference;
  const absl::Status status = inference->Attach(request, from_index);
  if (status.ok()) return;
  request->inference.reset();
  Fail(ref, status);
}

void Session::OnCancel(Ref ref, const v1::CancelRequest& request) {
  absl::StatusOr<bool> found = false;
  if (request.target_case() == v1::CancelRequest::kTargetRequestId) {
    found = CancelOwn(request.target_request_id());
  } else {
    found = CancelById(request.inference_id());
  }
  if (!found.ok()) return Fail(ref, found.status());
  v1::ServerFrame reply;
  reply.mutable_cancel()->set_found(*found);
  Reply(ref, std::move(reply));
}

bool Session::CancelOwn(uint64_t request_id) {
  const auto place = open_.find(request_id);
  if (place == open_.end()) return false;
  Request& target = *place->second;
  if (target.inference) return services_.offload.Cancel(target.inference->id(), supervisor::CancelCause::kOwner);
  if (!target.load_id.empty()) return services_.offload.Cancel(target.load_id, supervisor::CancelCause::kOwner);
  // A subscription, or a generation whose model is still being looked up.
  if (!target.generating && target.subscription == 0) return false;
  Reply(target.ref(), Cancelled());
  return true;
}

absl::StatusOr<bool> Session::CancelById(const std::string& inference_id) {
  for (const auto& [id, request] : open_) {
    if (request->inference && request->inference->id() == inference_id) {
      return services_.offload.Cancel(inference_id, supervisor::CancelCause::kOwner);
    }
  }
  const std::shared_ptr<Inference> inference = services_.inferences.Find(inference_id);
  if (inference == nullptr) return false;
  if (inference->uid() != peer_.uid) RETURN_IF_ERROR(RequireAdmin("cancel of another user's inference"));
  return services_.offload.Cancel(inference_id, supervisor::CancelCause::kOther);
}

void Session::OnTerminate(Ref ref, const v1::TerminateRequest& request) {
  const std::string& id = request.inference_id();
  const std::shared_ptr<Inference> inference = services_.inferences.Find(id);
  if (inference != nullptr && inference->uid() != peer_.uid) {
    if (absl::Status denied = RequireAdmin("terminate of another user's inference"); !denied.ok()) {
      return Fail(ref, denied);
    }
  }
  for (const uid_t other : services_.offload.OthersInProcessOf(id)) {
    if (other == peer_.uid) continue;
    if (!RequireAdmin("terminate").ok()) {
      return Fail(ref, Error(Reason::kPermissionDenied,
                             fmt::format("{}: its process also serves other users; cancel it instead", id)));
    }
  }
  services_.offload.TerminateInference(
      id, Guarded(ref, [ref](Session& self, const supervisor::InferenceTerminationAck& ack) {
        v1::ServerFrame reply;
        Fill(reply.mutable_terminate(), ack);
        self.Reply(ref, std::move(reply));
      }));
}

void Session::OnGrant(const v1::Grant& grant) {
  const auto place = open_.find(grant.target_request_id());
  // A grant may cross the terminal of its request, or come while its model is still being looked up.
  if (place == open_.end()) return;
  const std::shared_ptr<Inference> inference = place->second->inference;
  if (inference == nullptr) {
    std::optional<uint64_t>& early = place->second->early_grant;
    early = std::max(early.value_or(0), grant.up_to_index());
    return;
  }
  inference->Grant(grant.up_to_index());
}

}  // namespace bulkhead::daemon
