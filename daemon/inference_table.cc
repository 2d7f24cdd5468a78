#include "daemon/inference_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/sys.h"

namespace bulkhead::daemon {
namespace {

std::string NewId() {
  uint64_t number = 0;
  sys::GetRandom(&number, sizeof(number));
  return fmt::format("inf-{:016x}", number);
}

}  // namespace

InferenceTable::InferenceTable(uv_loop_t* loop, const Clock& clock, supervisor::LocalGenerationOffload& offload)
    : timer_(new uv_timer_t), clock_(clock), offload_(offload) {
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
  auto inference = std::make_shared<Inference>(std::move(traits), offload_, clock_, [this, uid] { Changed(uid); });
  by_id_.emplace(inference->id(), inference);
  (void)inference->Attach(listener, 0);
  offload_.Stream(std::move(request), inference->MakeSink());
  return inference;
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
  return by_id_.erase(place);
}

void InferenceTable::ExpireDue() {
  const Duration now = clock_.Monotonic();
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
