#include "daemon/inference_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/sys.h"
#include "supervisor/file_identity.h"

namespace bulkhead::daemon {
namespace {

std::string NewId() {
  uint64_t number = 0;
  sys::GetRandom(&number, sizeof(number));
  return fmt::format("inf-{:016x}", number);
}

// The request as its client could say it again, with nothing left to chance.
v1::GenerateRequest AsClientRequest(const supervisor::OffloadRequest& request, const Inference::Traits& traits) {
  v1::GenerateRequest out;
  out.mutable_model()->set_name(request.model.name);
  if (const auto* prompt = std::get_if<std::string>(&request.input)) {
    out.set_prompt(*prompt);
  } else if (const auto* messages = std::get_if<std::vector<v1::Message>>(&request.input)) {
    out.mutable_messages()->mutable_messages()->Add(messages->begin(), messages->end());
  } else {
    const auto& ids = std::get<std::vector<int32_t>>(request.input);
    out.mutable_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
  }
  *out.mutable_sampling() = request.sampling;
  out.mutable_limits()->set_max_tokens(request.max_tokens);
  out.mutable_limits()->set_context(request.context);
  out.mutable_limits()->set_deadline_ms(static_cast<uint64_t>(request.deadline.count()));
  out.mutable_limits()->set_queue_ms(static_cast<uint64_t>(request.queue_deadline.count()));
  out.set_priority(request.priority);
  out.set_on_worker_death(request.on_worker_death);
  out.set_linger_ms(static_cast<uint64_t>(traits.linger / std::chrono::milliseconds(1)));
  out.set_now_unix_s(request.now_unix_s);
  out.set_require_exact(request.require_exact);
  return out;
}

}  // namespace

InferenceTable::InferenceTable(uv_loop_t* loop, const Clock& clock, supervisor::LocalGenerationOffload& offload,
                               RecordStore* records)
    : timer_(new uv_timer_t), clock_(clock), offload_(offload), records_(records) {
  uv_timer_init(loop, timer_);
  timer_->data = this;
}

InferenceTable::~InferenceTable() {
  uv_close(reinterpret_cast<uv_handle_t*>(timer_),
           [](uv_handle_t* handle) { delete reinterpret_cast<uv_timer_t*>(handle); });
}

std::shared_ptr<Inference> InferenceTable::Start(supervisor::OffloadRequest request, Inference::Traits traits,
                                                 Inference::Listener* listener) {
  traits.id = NewId();
  traits.model = request.model.name;
  traits.uid = request.uid;
  request.inference_id = traits.id;
  const uid_t uid = request.uid;
  // A passed descriptor dies with the daemon, and who said FAIL wants to hear of it.
  if (records_ != nullptr && !request.model.passed && request.on_worker_death == v1::ON_WORKER_DEATH_RESUME) {
    const auto file = supervisor::IdentityOf(request.model.file == nullptr ? -1 : request.model.file->get());
    traits.records = records_;
    if (file.ok()) traits.record = records_->Begin(traits.id, uid, *file, AsClientRequest(request, traits));
  }
  auto inference = std::make_shared<Inference>(std::move(traits), offload_, clock_, [this, uid] { Changed(uid); });
  by_id_.emplace(inference->id(), inference);
  (void)inference->Attach(listener, 0);
  offload_.Stream(std::move(request), inference->MakeSink());
  return inference;
}

std::shared_ptr<Inference> InferenceTable::Restore(RecordedRequest recorded, bool exact) {
  Inference::Traits traits;
  traits.id = recorded.inference_id;
  traits.model = recorded.request.model().name();
  traits.uid = recorded.uid;
  traits.linger = std::chrono::milliseconds(recorded.request.linger_ms());
  traits.records = records_;
  traits.record = recorded.serial;
  const Duration until = clock_.Monotonic() + std::max(traits.linger, recorded.terminal ? kRecordGrace : kAttachWithin);
  const uid_t uid = recorded.uid;
  auto inference = std::make_shared<Inference>(std::move(traits), offload_, clock_, [this, uid] { Changed(uid); });
  inference->Restore(std::move(recorded), exact, until);
  by_id_.emplace(inference->id(), inference);
  return inference;
}

void InferenceTable::Resume(Inference& inference, supervisor::OffloadRequest request) {
  request.inference_id = inference.id();
  offload_.Stream(std::move(request), inference.MakeSink());
}

void InferenceTable::HandOver() {
  std::vector<std::shared_ptr<Inference>> all;
  for (const auto& [id, inference] : by_id_) {
    if (inference->record() != 0 && !inference->ended()) all.push_back(inference);
  }
  for (const std::shared_ptr<Inference>& inference : all) inference->HandOver();
}

void InferenceTable::ForgetRecords(Duration now) {
  while (!ended_records_.empty() && ended_records_.front().first <= now) {
    records_->Forget(ended_records_.front().second);
    ended_records_.pop_front();
  }
}

std::shared_ptr<Inference> InferenceTable::Find(std::string_view id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

void InferenceTable::Changed(uid_t uid) {
  BoundKept(uid);
  ExpireDue();
}

void InferenceTable::BoundKept(uid_t uid) {
  std::vector<std::pair<Duration, ById::iterator>> kept;
  size_t bytes = 0;
  for (auto place = by_id_.begin(); place != by_id_.end(); ++place) {
    const Inference& inference = *place->second;
    if (inference.uid() != uid || !inference.ended() || inference.has_listener()) continue;
    kept.emplace_back(inference.expires_at().value_or(Duration(0)), place);
    bytes += inference.kept_bytes();
  }
  std::sort(kept.begin(), kept.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  size_t count = kept.size();
  for (const auto& [expires, place] : kept) {
    if (count <= kMaxKept && bytes <= kMaxKeptBytes) break;
    --count;
    bytes -= place->second->kept_bytes();
    Erase(place);
  }
}

InferenceTable::ById::iterator InferenceTable::Erase(ById::iterator place) {
  const Inference& gone = *place->second;
  if (!gone.idempotency_key().empty()) keys_.Forget(gone.uid(), gone.idempotency_key());
  if (gone.record() != 0) ended_records_.emplace_back(clock_.Monotonic() + kRecordGrace, gone.record());
  return by_id_.erase(place);
}

void InferenceTable::ExpireDue() {
  const Duration now = clock_.Monotonic();
  ForgetRecords(now);
  std::optional<Duration> next;
  for (auto place = by_id_.begin(); place != by_id_.end();) {
    const std::shared_ptr<Inference> inference = place->second;
    const auto expires = inference->expires_at();
    if (!expires || (inference->ended() && inference->has_listener())) {
      ++place;
    } else if (*expires > now) {
      next = std::min(next.value_or(*expires), *expires);
      ++place;
    } else {
      place = Erase(place);
      if (!inference->ended()) offload_.Cancel(inference->id(), supervisor::CancelCause::kClientGone);
    }
  }
  if (!ended_records_.empty()) next = std::min(next.value_or(Duration::max()), ended_records_.front().first);
  if (!next) {
    uv_timer_stop(timer_);
    return;
  }
  const auto wait = std::chrono::duration_cast<std::chrono::milliseconds>(*next - now).count() + 1;
  uv_timer_start(
      timer_, [](uv_timer_t* timer) { static_cast<InferenceTable*>(timer->data)->ExpireDue(); },
      static_cast<uint64_t>(wait), 0);
}

}  // namespace bulkhead::daemon
