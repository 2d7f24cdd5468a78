// ContinuousBatchEngine::Loop, the part that runs on the engine thread.
#include "engine/runtime/engine_loop.h"

#include <algorithm>
#include <utility>

namespace bulkhead::engine {
namespace {

// While it drains with every sequence paused, the loop looks at the clock this often.
constexpr auto kDrainPoll = std::chrono::milliseconds(20);

}  // namespace

ContinuousBatchEngine::Loop::Loop(Options options, const kernels::KernelTable& kernels,
                                  std::unique_ptr<PlanRuntime> runtime)
    : options_(std::move(options)),
      kernel_tier_(kernels.name),
      private_bytes_(runtime->private_bytes()),
      beat_(options_.clock->Monotonic().count()),
      runtime_(std::move(runtime)),
      compute_(kernels, *options_.pool),
      stop_check_([this] { return ShouldGiveUp(); }),
      scratch_(options_.model->model().config().vocabulary),
      pacer_(options_.max_prefill_chunk, options_.fixed_prefill_chunk) {
  rows_.reserve(options_.shape.forward_rows);
  PublishSnapshot();
}

void ContinuousBatchEngine::Loop::Run() {
  while (AwaitWork()) {
    Beat();
    TakeCommands();
    CancelAllIfOverdue();
    AdmitWaiting();
    PublishSnapshot();
    Deliver();
    if (HasRunnable()) Step();
    PublishSnapshot();
    Deliver();
  }
  std::lock_guard lock(mutex_);
  running_ = false;
  mailbox_.clear();
  changed_.notify_all();
}

bool ContinuousBatchEngine::Loop::AwaitWork() {
  const bool runnable = HasRunnable() || (capacity_freed_ && waiting_.size() > 0);
  if (!runnable) phase_.store(EnginePhase::kIdle, std::memory_order_relaxed);
  std::unique_lock lock(mutex_);
  const auto ready = [&] { return runnable || !mailbox_.empty() || quit_ || (draining_ && !live_.empty()); };
  asleep_ = !ready();
  wake_.wait(lock, ready);
  asleep_ = false;
  if (!runnable && mailbox_.empty() && !quit_ && options_.clock->Monotonic() < drain_deadline_) {
    wake_.wait_for(lock, kDrainPoll);
  }
  return !quit_;
}

void ContinuousBatchEngine::Loop::TakeCommands() {
  std::deque<Command> commands;
  {
    std::lock_guard lock(mutex_);
    commands.swap(mailbox_);
    published_.waiting += unseen_;
    unseen_ = 0;
  }
  for (Command& command : commands) Handle(command);
}

void ContinuousBatchEngine::Loop::Handle(Command& command) {
  if (auto* sequence = std::get_if<std::unique_ptr<Sequence>>(&command)) {
    Accept(std::move(*sequence));
  } else if (const auto* cancel = std::get_if<CancelCommand>(&command)) {
    CancelNow(cancel->id);
  } else if (const auto* pause = std::get_if<PauseCommand>(&command)) {
    const auto found = sequences_.find(pause->id);
    if (found != sequences_.end()) found->second->paused = pause->paused;
  } else if (const auto* threads = std::get_if<ThreadsCommand>(&command)) {
    options_.pool->SetActiveThreads(threads->threads);
  } else {
    std::get<std::function<void()>>(command)();
  }
}

void ContinuousBatchEngine::Loop::Accept(std::unique_ptr<Sequence> sequence) {
  sequence->arrival = waiting_.Push({sequence->id(), sequence->priority(), sequence->positions()});
  sequences_[sequence->id()] = std::move(sequence);
}

void ContinuousBatchEngine::Loop::CancelNow(uint64_t id) {
  const auto found = sequences_.find(id);
  if (found != sequences_.end()) EndSequence(*found->second, FinishReason::kCancelled, absl::OkStatus());
}

void ContinuousBatchEngine::Loop::CancelAllIfOverdue() {
  {
    std::lock_guard lock(mutex_);
    if (!draining_ || options_.clock->Monotonic() < drain_deadline_) return;
  }
  while (!sequences_.empty()) {
    EndSequence(*sequences_.begin()->second, FinishReason::kUnspecified,
                Error(Reason::kShuttingDown, "the engine is shutting down"));
  }
}

void ContinuousBatchEngine::Loop::AdmitWaiting() {
  capacity_freed_ = false;
  capacity_blocked_ = waiting_.AdmitAll([this](const Waiter& waiter) { return AdmitOne(waiter); });
}

Admission ContinuousBatchEngine::Loop::AdmitOne(const Waiter& waiter) {
  Sequence& sequence = *sequences_.at(waiter.id);
  const auto known = static_cast<uint32_t>(sequence.tokens().size());
  const Admission admission = runtime_->Admit({.limit = waiter.tokens,
                                               .now = sequence.guaranteed ? waiter.tokens : known,
                                               .salt = options_.prefix_cache ? &sequence.salt() : nullptr});
  if (admission.verdict == Admission::Verdict::kNeverFits) {
    EndSequence(sequence, FinishReason::kUnspecified,
                Error(Reason::kContextTooLarge, "the sequence is larger than the KV pool"));
  } else if (admission.verdict == Admission::Verdict::kAdmitted) {
    sequence.slot = admission.slot;
    if (std::exchange(sequence.announced, true)) return admission;
    options_.sink->OnStarted(sequence.id(), sequence.prompt_tokens(), context());
    SequenceOutput output;
    sequence.CheckResumed(output, options_.clock->Monotonic());
    if (output.terminal()) Emit(std::move(output));
  }
  return admission;
}

bool ContinuousBatchEngine::Loop::HasRunnable() const {
  return std::any_of(sequences_.begin(), sequences_.end(),
                     [](const auto& entry) { return entry.second->slot && !entry.second->paused; });
}

std::vector<Sequence*> ContinuousBatchEngine::Loop::RunnableByLastServed(bool prefilling) const {
  std::vector<Sequence*> found;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence->slot && !sequence->paused && sequence->prefilling() == prefilling) found.push_back(sequence.get());
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Sequence* a, const Sequence* b) { return a->last_served_step < b->last_served_step; });
  return found;
}

std::vector<ContinuousBatchEngine::Loop::Share> ContinuousBatchEngine::Loop::Plan() {
  std::vector<Share> plan;
  uint32_t room = options_.shape.forward_rows;
  for (Sequence* sequence : RunnableByLastServed(false)) {
    if (room == 0) break;
    plan.push_back({sequence, 1});
    --room;
  }
  AddPrefill(plan, std::min(room, pacer_.Rows(!plan.empty())));
  SecurePages(plan);
  return plan;
}

void ContinuousBatchEngine::Loop::Step() {
  const std::vector<Share> plan = Plan();
  if (plan.empty()) return;
  const bool prefill = plan.back().sequence->prefilling();
  phase_.store(prefill ? EnginePhase::kPrefill : EnginePhase::kDecode, std::memory_order_relaxed);
  const Duration began = options_.clock->Monotonic();
  for (const Share& share : plan) share.sequence->MarkServed(began);
  const absl::Status status = Forward(plan);
  batch_.clear();
  if (ReasonOf(status) == Reason::kCancelled) return;  // the mailbox says who; the others' rows are computed again
  if (!status.ok()) {
    {
      std::lock_guard lock(mutex_);
      last_error_ = status;
    }
    for (const Share& share : plan) EndSequence(*share.sequence, FinishReason::kUnspecified, status);
    return;
  }
  ++steps_;
  if (prefill) pacer_.Record(static_cast<uint32_t>(rows_.size()), options_.clock->Monotonic() - began);
  Commit(plan);
}

absl::Status ContinuousBatchEngine::Loop::AddRows(const Share& share) {
  Sequence& sequence = *share.sequence;
  const uint32_t end = sequence.computed() + share.rows;
  RETURN_IF_ERROR(runtime_->Grow(*sequence.slot, end, sequence.computed()));
  for (uint32_t position = sequence.computed(); position < end; ++position) {
    rows_.push_back({*sequence.slot, sequence.tokens()[position], position, position + 1 == sequence.tokens().size()});
  }
  return absl::OkStatus();
}

absl::Status ContinuousBatchEngine::Loop::Forward(const std::vector<Share>& plan) {
  rows_.clear();
  batch_.clear();
  for (const Share& share : plan) {
    RETURN_IF_ERROR(AddRows(share));
    batch_.insert(share.sequence->id());
  }
  return options_.model->model().Forward(
      rows_, {runtime_->kv(), runtime_->states(), runtime_->workspace(), compute_, stop_check_, progress_});
}

bool ContinuousBatchEngine::Loop::ShouldGiveUp() {
  Beat();
  std::lock_guard lock(mutex_);
  if (draining_ && options_.clock->Monotonic() >= drain_deadline_) return true;
  return std::any_of(mailbox_.begin(), mailbox_.end(), [this](const Command& command) {
    const auto* cancel = std::get_if<CancelCommand>(&command);
    return cancel != nullptr && batch_.contains(cancel->id);
  });
}

void ContinuousBatchEngine::Loop::Commit(const std::vector<Share>& plan) {
  uint32_t logits_row = 0;
  for (const Share& share : plan) {
    Sequence& sequence = *share.sequence;
    (sequence.prefilling() ? tokens_prefilled_ : tokens_decoded_) += share.rows;
    sequence.Commit(share.rows);
    sequence.last_served_step = steps_;
    const uint32_t computed = sequence.computed();
    runtime_->Publish(*sequence.slot, sequence.tokens().first(computed), sequence.checkpoints.contains(computed));
    if (sequence.pending() != 0) continue;
    const std::span<float> logits = runtime_->workspace().Logits(logits_row++);
    if (options_.observe_logits) options_.observe_logits(sequence.id(), computed, logits);
    SequenceOutput output;
    sequence.Choose(logits, scratch_, output, options_.clock->Monotonic());
    if (!output.tokens.empty() || !output.text.empty() || output.terminal()) Emit(std::move(output));
  }
}

void ContinuousBatchEngine::Loop::EndSequence(Sequence& sequence, FinishReason finish, const absl::Status& error) {
  SequenceOutput output;
  sequence.End(finish, error, output, options_.clock->Monotonic());
  Emit(std::move(output));
}

// A terminal output takes its sequence with it: pages first, so that the next admission sees them.
void ContinuousBatchEngine::Loop::Emit(SequenceOutput output) {
  if (output.terminal()) {
    const auto found = sequences_.find(output.id);
    const Sequence& sequence = *found->second;
    if (sequence.slot) {
      if (output.error.ok()) runtime_->PublishEnd(*sequence.slot, sequence.tokens().first(sequence.computed()));
      runtime_->Release(*sequence.slot);
      capacity_freed_ = true;
    }
    waiting_.Remove(output.id);
    sequences_.erase(found);
  }
  outputs_.push_back(std::move(output));
}

void ContinuousBatchEngine::Loop::Deliver() {
  if (outputs_.empty()) return;
  options_.sink->OnStep(outputs_);
  std::lock_guard lock(mutex_);
  for (const SequenceOutput& output : outputs_) {
    if (output.terminal()) live_.erase(output.id);
  }
  outputs_.clear();
  if (live_.empty()) changed_.notify_all();
}

void ContinuousBatchEngine::Loop::PublishSnapshot() {
  EngineSnapshot snapshot;
  std::optional<Duration> oldest;
  snapshot.max_sequences = options_.shape.sequences;
  snapshot.context = context();
  snapshot.waiting = static_cast<uint32_t>(waiting_.size());
  for (const auto& [id, sequence] : sequences_) {
    if (sequence->paused) ++snapshot.paused;
    if (sequence->slot) {
      ++(sequence->prefilling() ? snapshot.active_prefill : snapshot.active_decode);
    } else if (!oldest || sequence->submitted() < *oldest) {
      oldest = sequence->submitted();
    }
  }
  const auto held = runtime_->Snapshot();
  const PageCounts pages = runtime_->Pages();
  snapshot.kv_pages_total = pages.total;
  snapshot.kv_pages_free = pages.free;
  snapshot.kv_pages_idle = pages.idle;
  snapshot.kv_pages_reserved = pages.reserved;
  snapshot.cache = runtime_->cache();
  snapshot.preemptions = preemptions_;
  snapshot.capacity_blocked = capacity_blocked_;
  snapshot.tokens_prefilled = tokens_prefilled_;
  snapshot.tokens_decoded = tokens_decoded_;
  snapshot.steps = steps_;
  std::lock_guard lock(mutex_);
  if (!held.ok()) {
    balanced_ = false;
    last_error_ = held.status();
  }
  published_ = snapshot;
  if (unseen_ == 0 || oldest) oldest_waiting_ = oldest;
}

}  // namespace bulkhead::engine
