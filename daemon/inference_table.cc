#include "daemon/inference_table.h"

#include <fmt/format.h>

#include <algorithm>

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
  auto inference = std::make_shared<Inference>(std::move(traits), offload_, clock_, [this] { ExpireDue(); });
  by_id_.emplace(inference->id(), inference);
  (void)inference->Attach(listener, 0);
  offload_.Stream(std::move(request), inference->MakeSink());
  return inference;
}

std::shared_ptr<Inference> InferenceTable::Find(std::string_view id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

std::shared_ptr<Inference> InferenceTable::FindByKey(uid_t uid, std::string_view key) const {
  if (key.empty()) return nullptr;
  for (const auto& [id, inference] : by_id_) {
    if (inference->uid() == uid && inference->lingers() && inference->idempotency_key() == key) return inference;
  }
  return nullptr;
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
      place = by_id_.erase(place);
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
