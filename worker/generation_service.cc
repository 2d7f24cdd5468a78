#include "worker/generation_service.h"

#include <fmt/format.h>

#include <utility>

#include "engine/chat/chat.h"
#include "engine/runtime/continuous_batch_engine.h"
#include "engine/runtime/engine_thread.h"
#include "engine/runtime/loaded_model.h"
#include "engine/tokenizer/tokenizer.h"
#include "ipc/limits.h"
#include "worker/hooks.h"
#include "worker/outbox.h"
#include "worker/translate.h"

namespace bulkhead::worker {
namespace {

constexpr size_t kMaxRequests = 1024;
// Prompts waiting to be turned into ids.
constexpr size_t kMaxIntakeBytes = size_t{2} * ipc::kMaxDaemonFrame;
// Ids in one answer: what the daemon's parser takes, and at most 4 bytes each on the wire.
constexpr size_t kMaxReplyIds = ipc::kDefaultMaxFrame / 4 - 1024;

}  // namespace

void GenerationService::Attach(std::shared_ptr<const engine::LoadedModel> model,
                               engine::ContinuousBatchEngine* engine) {
  model_ = std::move(model);
  engine_ = engine;
}

void GenerationService::Generate(const v1::WorkerGenerate& generate) {
  const size_t bytes = generate.ByteSizeLong();
  if (absl::Status status = Register(generate.handle(), bytes); !status.ok()) {
    return EndAtIntake(generate.handle(), static_cast<uint64_t>(generate.resume_ids_size()), status);
  }
  intake_.Post([this, bytes, request = std::make_shared<const v1::WorkerGenerate>(generate)] {
    Admit(*request);
    intake_bytes_ -= bytes;
  });
}

absl::Status GenerationService::Register(uint64_t handle, size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (requests_.contains(handle)) {
    return Error(Reason::kInvalidRequest, fmt::format("handle {} is under way", handle));
  }
  if (requests_.size() >= kMaxRequests || intake_bytes_ + bytes > kMaxIntakeBytes) {
    return Error(Reason::kQueueFull,
                 fmt::format("worker: {} requests, {} bytes of prompts; limits {} and {}", requests_.size(),
                             intake_bytes_.load(), kMaxRequests, kMaxIntakeBytes));
  }
  requests_.try_emplace(handle);
  intake_bytes_ += bytes;
  return absl::OkStatus();
}

void GenerationService::Admit(const v1::WorkerGenerate& generate) {
  const auto index = static_cast<uint64_t>(generate.resume_ids_size());
  auto request = ToRequest(generate);
  if (request.ok()) {
    auto ids = PromptIds(generate);
    if (!ids.ok()) {
      request = ids.status();
    } else {
      request->prompt_ids = *std::move(ids);
    }
  }
  absl::Status status = request.ok() ? Submit(*std::move(request)) : request.status();
  if (status.ok()) return;
  {
    const std::lock_guard lock(mutex_);
    requests_.erase(generate.handle());
  }
  EndAtIntake(generate.handle(), index, status);
}

absl::StatusOr<std::vector<int32_t>> GenerationService::PromptIds(const v1::WorkerGenerate& generate) const {
  const engine::Tokenizer& tokenizer = model_->tokenizer();
  engine::EncodeOptions options;
  options.parse_special = true;
  engine::ChatPrompt chat;
  std::string_view text;
  switch (generate.input_case()) {
    case v1::WorkerGenerate::kTokenIds:
      return std::vector<int32_t>(generate.token_ids().ids().begin(), generate.token_ids().ids().end());
    case v1::WorkerGenerate::kMessages: {
      ASSIGN_OR_RETURN(chat, model_->chat().Render(ToMessages(generate.messages())));
      options.literal = chat.literal;
      text = chat.text;
      break;
    }
    case v1::WorkerGenerate::kPrompt:
      text = generate.prompt();
      break;
    default:
      return Error(Reason::kInvalidRequest, "generate: no prompt, messages or token ids");
  }
  // A book for a small context is refused before minutes go into its ids.
  if (const uint64_t fewest = tokenizer.FewestTokens(text.size()); fewest >= engine_->context()) {
    return Error(Reason::kContextTooLarge,
                 fmt::format("prompt: at least {} tokens, the context holds {}", fewest, engine_->context()));
  }
  return tokenizer.Encode(text, options);
}

absl::Status GenerationService::Submit(engine::GenerationRequest request) {
  const uint64_t handle = request.id;
  const std::lock_guard lock(mutex_);
  Request& entry = requests_.at(handle);
  if (entry.cancelled) return Error(Reason::kCancelled, "cancelled before it began");
  entry.prompt_ids = request.prompt_ids;
  RETURN_IF_ERROR(engine_->Submit(std::move(request)));
  entry.submitted = true;
  if (entry.paused || held_back_) engine_->Pause(handle);
  return absl::OkStatus();
}

void GenerationService::EndAtIntake(uint64_t handle, uint64_t index, const absl::Status& why) {
  v1::WorkerFrame frame;
  engine::SequenceOutput output;
  output.id = handle;
  output.index = index;
  if (ReasonOf(why) == Reason::kCancelled) {
    output.finish = engine::FinishReason::kCancelled;
    output.usage.completion_tokens = static_cast<uint32_t>(index);
  } else {
    output.error = why;
  }
  Fill(output, frame.mutable_step()->add_sequences());
  outbox_.Push(frame);
}

void GenerationService::Cancel(uint64_t handle) {
  const std::lock_guard lock(mutex_);
  const auto found = requests_.find(handle);
  if (found == requests_.end()) return;
  found->second.cancelled = true;
  if (found->second.submitted) engine_->Cancel(handle);
}

void GenerationService::Pause(uint64_t handle, bool paused) {
  const std::lock_guard lock(mutex_);
  const auto found = requests_.find(handle);
  if (found == requests_.end() || found->second.paused == paused) return;
  found->second.paused = paused;
  if (!found->second.submitted || held_back_) return;
  if (paused) {
    engine_->Pause(handle);
  } else {
    engine_->Unpause(handle);
  }
}

void GenerationService::Tokenize(const v1::WorkerTokenize& tokenize) {
  const size_t bytes = tokenize.ByteSizeLong();
  if (intake_bytes_ + bytes > kMaxIntakeBytes) {
    v1::WorkerFrame frame;
    frame.mutable_tokenized()->set_handle(tokenize.handle());
    frame.mutable_tokenized()->set_reason(v1::REASON_QUEUE_FULL);
    return outbox_.Push(frame);
  }
  intake_bytes_ += bytes;
  intake_.Post([this, bytes, request = std::make_shared<const v1::WorkerTokenize>(tokenize)] {
    RunTokenize(*request);
    intake_bytes_ -= bytes;
  });
}

void GenerationService::RunTokenize(const v1::WorkerTokenize& tokenize) {
  engine::EncodeOptions options;
  options.add_special = tokenize.add_special();
  options.parse_special = tokenize.parse_special();
  const std::vector<int32_t> ids = model_->tokenizer().Encode(tokenize.text(), options);
  v1::WorkerFrame frame;
  v1::WorkerTokenized& reply = *frame.mutable_tokenized();
  reply.set_handle(tokenize.handle());
  if (ids.size() > kMaxReplyIds) {
    reply.set_reason(v1::REASON_FRAME_TOO_LARGE);
    reply.set_message(fmt::format("tokenize: {} ids, limit {}", ids.size(), kMaxReplyIds));
  } else {
    reply.mutable_ids()->Add(ids.begin(), ids.end());
  }
  outbox_.Push(frame);
}

void GenerationService::ResumeIfDrained() {
  if (!outbox_.drained()) return;
  const std::lock_guard lock(mutex_);
  if (!held_back_) return;
  held_back_ = false;
  for (const auto& [handle, request] : requests_) {
    if (request.submitted && !request.paused) engine_->Unpause(handle);
  }
}

void GenerationService::PauseIfCongested() {
  if (!outbox_.congested()) return;
  {
    const std::lock_guard lock(mutex_);
    if (held_back_) return;
    held_back_ = true;
    for (const auto& [handle, request] : requests_) {
      if (request.submitted && !request.paused) engine_->Pause(handle);
    }
  }
  // The session may have sent everything before it could see this: it looks once more.
  outbox_.Wake();
}

bool GenerationService::busy() {
  const std::lock_guard lock(mutex_);
  return !requests_.empty();
}

void GenerationService::OnStarted(uint64_t id, uint32_t, uint32_t context) {
  v1::WorkerFrame frame;
  v1::WorkerStarted& started = *frame.mutable_started();
  started.set_handle(id);
  started.set_context(context);
  std::vector<int32_t> ids;
  {
    const std::lock_guard lock(mutex_);
    ids = std::exchange(requests_.at(id).prompt_ids, {});
  }
  started.mutable_prompt_ids()->Add(ids.begin(), ids.end());
  outbox_.Push(frame);
}

void GenerationService::OnStep(std::span<const engine::SequenceOutput> outputs) {
  if (outputs.empty()) return;
  step_.mutable_step()->clear_sequences();
  for (const engine::SequenceOutput& output : outputs) {
    Fill(output, step_.mutable_step()->add_sequences());
    tokens_ += output.tokens.size();
  }
  outbox_.Push(step_);
  {
    const std::lock_guard lock(mutex_);
    for (const engine::SequenceOutput& output : outputs) {
      if (output.terminal()) requests_.erase(output.id);
    }
  }
  PauseIfCongested();
  if (hooks_ != nullptr) hooks_->OnTokens(tokens_);
}

}  // namespace bulkhead::worker
