#include "daemon/inference.h"

#include <fmt/format.h>

#include "daemon/reply.h"

namespace bulkhead::daemon {
namespace {

size_t BytesOf(const supervisor::DeltaEvent& delta) {
  return sizeof(delta) + delta.text.size() + delta.tokens.size() * sizeof(v1::Token);
}

uint64_t EndOf(const supervisor::DeltaEvent& delta) { return delta.index + delta.tokens.size(); }

}  // namespace

class Inference::Sink final : public supervisor::StreamSink {
 public:
  explicit Sink(std::shared_ptr<Inference> inference) : inference_(std::move(inference)) {}

  void OnQueued(const supervisor::QueuedEvent& event) override {
    v1::ServerFrame frame;
    Fill(frame.mutable_queued(), event);
    inference_->OnEvent(std::move(frame));
  }
  void OnLoading(const supervisor::LoadingEvent& event) override {
    v1::ServerFrame frame;
    Fill(frame.mutable_loading(), event);
    inference_->OnEvent(std::move(frame));
  }
  void OnStarted(const supervisor::StartedEvent& event) override { inference_->OnStarted(event); }
  void OnResumed(const supervisor::ResumedEvent& event) override {
    v1::ServerFrame frame;
    Fill(frame.mutable_resumed(), event);
    inference_->OnResumed(std::move(frame));
  }
  void OnDelta(const supervisor::DeltaEvent& delta) override { inference_->OnDelta(delta); }
  void OnDone(const supervisor::DoneEvent& done) override {
    v1::ServerFrame frame;
    Fill(frame.mutable_done(), done);
    inference_->OnTerminal(std::move(frame), done.finish_reason != v1::FINISH_REASON_CANCELLED);
  }
  void OnError(const supervisor::OffloadError& error) override {
    v1::ServerFrame frame;
    Fill(frame.mutable_error(), error);
    inference_->OnTerminal(std::move(frame), false);
  }

 private:
  std::shared_ptr<Inference> inference_;
};

Inference::Inference(Traits traits, supervisor::LocalGenerationOffload& offload, const Clock& clock,
                     std::function<void()> changed)
    : traits_(std::move(traits)), offload_(offload), clock_(clock), changed_(std::move(changed)) {}

std::unique_ptr<supervisor::StreamSink> Inference::MakeSink() { return std::make_unique<Sink>(shared_from_this()); }

absl::Status Inference::Attach(Listener* listener, uint64_t from_index) {
  if (from_index < first_kept_) {
    return Error(Reason::kLimitExceeded, fmt::format("inference {}: tokens before {} are no longer kept, {} asked for",
                                                     id(), first_kept_, from_index));
  }
  if (listener_ != nullptr) std::exchange(listener_, nullptr)->Replaced();
  const std::shared_ptr<Inference> self = shared_from_this();
  listener_ = listener;
  grant_.reset();
  if (!ended()) expires_at_.reset();
  delivered_ = 0;
  while (delivered_ < deltas_.size()) {
    const supervisor::DeltaEvent& delta = deltas_[delivered_];
    if (EndOf(delta) > from_index || (delta.tokens.empty() && delta.index >= from_index)) break;
    ++delivered_;
  }
  if (started_) listener_->Deliver(*started_);
  if (auto resumed = std::exchange(resumed_, std::nullopt); resumed && !ended())
    listener_->Deliver(*std::move(resumed));
  Pump();
  return absl::OkStatus();
}

void Inference::Detach() {
  const std::shared_ptr<Inference> self = shared_from_this();
  listener_ = nullptr;
  grant_.reset();
  if (!ended() && !lingers()) {
    offload_.Cancel(id(), supervisor::CancelCause::kClientGone);
  } else if (!ended()) {
    LingerFromNow();
    UpdatePause();
  }
  changed_();
}

void Inference::Grant(uint64_t up_to_index) {
  grant_ = std::max(grant_.value_or(0), up_to_index);
  Pump();
}

void Inference::OnEvent(v1::ServerFrame frame) {
  if (listener_ != nullptr) listener_->Deliver(std::move(frame));
}

void Inference::OnResumed(v1::ServerFrame frame) {
  Record(frame);
  OnEvent(std::move(frame));
}

// Before anybody else hears of it: what a client has is never more than what is on record.
void Inference::Record(const v1::ServerFrame& frame) {
  if (traits_.records != nullptr) traits_.records->Append(traits_.record, frame);
}

void Inference::Restore(RecordedRequest&& recorded, bool exact, Duration until) {
  restored_ = true;
  if (recorded.started) *started_.emplace().mutable_started() = std::move(*recorded.started);
  for (v1::Delta& kept : recorded.deltas) {
    supervisor::DeltaEvent delta;
    delta.index = kept.index();
    delta.text = std::move(*kept.mutable_text());
    delta.tokens.assign(kept.tokens().begin(), kept.tokens().end());
    next_index_ = EndOf(delta);
    kept_bytes_ += BytesOf(delta);
    deltas_.push_back(std::move(delta));
  }
  if (!deltas_.empty() && recorded.request.limits().max_tokens() > 0) {
    tail_known_ = next_index_ >= recorded.request.limits().max_tokens();
  }
  tail_known_ = tail_known_ || (!deltas_.empty() && deltas_.back().tokens.empty());
  if (recorded.terminal) {
    terminal_ = std::move(*recorded.terminal);
  } else if (started_) {
    v1::ServerFrame frame;
    Fill(frame.mutable_resumed(), supervisor::ResumedEvent{recorded.resumes + 1, Reason::kWorkerTerminated, exact});
    Record(frame);
    resumed_ = std::move(frame);
  }
  expires_at_ = until;
}

void Inference::HandOver() {
  traits_.record = 0;
  listener_ = nullptr;
  offload_.Cancel(id(), supervisor::CancelCause::kClientGone);
}

void Inference::Abandon(const supervisor::OffloadError& error) {
  v1::ServerFrame frame;
  Fill(frame.mutable_error(), error);
  OnTerminal(std::move(frame), false);
}

void Inference::OnStarted(const supervisor::StartedEvent& started) {
  traits_.received_bytes.Reset();
  if (restored_ && started_) {
    if (paused_) offload_.Pause(id(), true);
    return;
  }
  v1::ServerFrame frame;
  Fill(frame.mutable_started(), started);
  started_ = frame;
  Record(frame);
  OnEvent(std::move(frame));
  // What was asked before there was a sequence is asked again of the one there is now.
  if (paused_) offload_.Pause(id(), true);
}

void Inference::OnDelta(const supervisor::DeltaEvent& delta) {
  if (tail_known_ && delta.tokens.empty()) return;
  if (traits_.records != nullptr) {
    v1::ServerFrame frame;
    Fill(frame.mutable_delta(), delta);
    Record(frame);
  }
  next_index_ = EndOf(delta);
  kept_bytes_ += BytesOf(delta);
  deltas_.push_back(delta);
  Pump();
}

void Inference::OnTerminal(v1::ServerFrame frame, bool waits_for_deltas) {
  traits_.received_bytes.Reset();
  traits_.in_flight.Reset();
  Record(frame);
  terminal_ = std::move(frame);
  terminal_waits_ = waits_for_deltas;
  LingerFromNow();
  Pump();
}

void Inference::Pump() {
  const std::shared_ptr<Inference> self = shared_from_this();
  DeliverDeltas();
  DeliverTerminal();
  UpdatePause();
  if (ended() && listener_ == nullptr) changed_();
}

void Inference::DeliverDeltas() {
  while (listener_ != nullptr && delivered_ < deltas_.size()) {
    const supervisor::DeltaEvent& delta = deltas_[delivered_];
    if (listener_->Congested() || !GrantCovers(delta.index)) break;
    v1::ServerFrame frame;
    Fill(frame.mutable_delta(), delta);
    ++delivered_;
    listener_->Deliver(std::move(frame));
  }
  ForgetDelivered();
}

void Inference::ForgetDelivered() {
  while (delivered_ > 0 && (!lingers() || kept_bytes_ > kKeptBytes)) {
    kept_bytes_ -= BytesOf(deltas_.front());
    first_kept_ = EndOf(deltas_.front());
    deltas_.pop_front();
    --delivered_;
  }
}

void Inference::DeliverTerminal() {
  if (listener_ == nullptr || !ended()) return;
  const bool all_delivered = delivered_ == deltas_.size();
  if (!all_delivered && terminal_waits_) return;
  Listener* listener = std::exchange(listener_, nullptr);
  listener->Deliver(*terminal_);
  listener->Finished();
}

void Inference::UpdatePause() {
  bool wanted = false;
  if (ended()) {
    paused_ = false;
    return;
  }
  if (listener_ != nullptr) {
    wanted = listener_->Congested() || delivered_ < deltas_.size() || !GrantCovers(next_index_);
  } else {
    wanted = lingers() && kept_bytes_ > kKeptBytes;
  }
  if (wanted == paused_) return;
  paused_ = wanted;
  offload_.Pause(id(), wanted);
}

void Inference::LingerFromNow() {
  const Duration until = clock_.Monotonic() + traits_.linger;
  // Taken over from an earlier daemon, its client still has the time it was given to come back.
  const bool awaited = restored_ && listener_ == nullptr && expires_at_.has_value();
  expires_at_ = awaited ? std::max(*expires_at_, until) : until;
}

}  // namespace bulkhead::daemon
