#include "client/cli/generation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/reason.h"
#include "base/status.h"
#include "bulkhead/v1/client.pb.h"
#include "client/cli/progress.h"
#include "client/cli/text.h"
#include "client/locate.h"

namespace bulkhead::cli {
namespace {

// The protocol's strings are UTF-8; anything else would cost the whole connection.
absl::Status CheckText(std::string_view what, std::string_view text) {
  const size_t at = FirstInvalidUtf8(text);
  if (at == std::string_view::npos) return absl::OkStatus();
  return Error(Reason::kInvalidRequest, fmt::format("{}: byte {} is not UTF-8", what, at));
}

absl::Status FillSampling(const RunOptions& options, v1::Sampling* sampling) {
  if (options.temperature) sampling->set_temperature(*options.temperature);
  if (options.top_k) sampling->set_top_k(*options.top_k);
  if (options.top_p) sampling->set_top_p(*options.top_p);
  if (options.min_p) sampling->set_min_p(*options.min_p);
  if (options.repeat_penalty) sampling->set_repeat_penalty(*options.repeat_penalty);
  if (options.seed) sampling->set_seed(*options.seed);
  for (const std::string& stop : options.stop) {
    RETURN_IF_ERROR(CheckText("--stop", stop));
    sampling->add_stop(stop);
  }
  sampling->set_ignore_eos(options.ignore_eos);
  return absl::OkStatus();
}

v1::Priority PriorityOf(std::string_view name) {
  if (name == "interactive") return v1::PRIORITY_INTERACTIVE;
  if (name == "batch") return v1::PRIORITY_BATCH;
  return v1::PRIORITY_NORMAL;
}

}  // namespace

Generation::Generation(Session& session, const RunOptions& options) : session_(session), options_(options) {}
Generation::~Generation() = default;

ExitStatus Generation::RunMessages(const std::vector<ChatMessage>& messages) {
  v1::ClientFrame frame;
  for (const ChatMessage& message : messages) {
    if (absl::Status status = CheckText(message.role, message.content); !status.ok()) return session_.Fail(status);
    v1::Message* added = frame.mutable_generate()->mutable_messages()->add_messages();
    added->set_role(message.role);
    added->set_content(message.content);
  }
  return Run(std::move(frame));
}

ExitStatus Generation::RunRaw(const std::string& prompt) {
  if (absl::Status status = CheckText("PROMPT", prompt); !status.ok()) return session_.Fail(status);
  v1::ClientFrame frame;
  frame.mutable_generate()->set_prompt(prompt);
  return Run(std::move(frame));
}

absl::Status Generation::Prepare(v1::ClientFrame* frame, UniqueFd* descriptor) const {
  v1::GenerateRequest* request = frame->mutable_generate();
  ASSIGN_OR_RETURN(client::ModelArgument model, client::ResolveModel(options_.model));
  client::SetModelRef(model, request->mutable_model());
  *descriptor = std::move(model.file);
  RETURN_IF_ERROR(FillSampling(options_, request->mutable_sampling()));
  request->mutable_limits()->set_max_tokens(options_.max_tokens);
  request->mutable_limits()->set_context(options_.context);
  request->mutable_limits()->set_deadline_ms(options_.timeout_ms);
  request->set_priority(PriorityOf(options_.priority));
  request->set_on_worker_death(options_.on_worker_death == "fail" ? v1::ON_WORKER_DEATH_FAIL
                                                                  : v1::ON_WORKER_DEATH_RESUME);
  return absl::OkStatus();
}

ExitStatus Generation::Run(v1::ClientFrame frame) {
  UniqueFd descriptor;
  if (absl::Status status = Prepare(&frame, &descriptor); !status.ok()) return session_.Fail(status, options_.model);
  if (options_.no_stream && session_.json()) whole_ = std::make_unique<v1::Delta>();
  const v1::ServerFrame terminal = session_.Call(
      std::move(frame), std::move(descriptor), [this](const v1::ServerFrame& event) { OnEvent(event); },
      Session::OnInterrupt::kCancel);
  const ExitStatus status = OnTerminal(terminal);
  if (!session_.interrupted()) return status;
  session_.Note("cancelled");
  return kInterrupted;
}

void Generation::OnEvent(const v1::ServerFrame& frame) {
  if (ShowWaiting(session_, frame, options_.model)) return;
  if (frame.has_started()) {
    context_ = frame.started().context();
    session_.ClearProgress();
    if (session_.json()) session_.PrintJson(frame.started(), "started");
  } else if (frame.has_delta()) {
    OnDelta(frame.delta());
  }
}

void Generation::OnDelta(const v1::Delta& delta) {
  text_ += delta.text();
  for (const v1::Token& token : delta.tokens()) ids_.push_back(token.id());
  if (whole_ != nullptr) {
    *whole_->mutable_text() += delta.text();
    whole_->mutable_tokens()->MergeFrom(delta.tokens());
  } else if (session_.json()) {
    session_.PrintJson(delta, "delta");
  } else if (!options_.no_stream && options_.ids) {
    std::string line;
    const size_t first = ids_.size() - static_cast<size_t>(delta.tokens_size());
    for (size_t i = first; i < ids_.size(); ++i) line += fmt::format("{}{}", i == 0 ? "" : " ", ids_[i]);
    session_.Print(line);
  } else if (!options_.no_stream) {
    session_.Print(session_.stdout_is_terminal() ? Printable(delta.text()) : delta.text());
  }
}

// What --no-stream kept until the end was known.
void Generation::PrintHeldBack() {
  if (whole_ != nullptr) {
    session_.PrintJson(*whole_, "delta");
  } else if (options_.no_stream && !session_.json()) {
    session_.Print(options_.ids                    ? fmt::format("{}", fmt::join(ids_, " "))
                   : session_.stdout_is_terminal() ? Printable(text_)
                                                   : text_);
  }
}

void Generation::EndLine() {
  if (session_.json()) return;
  const bool open_line = options_.ids ? !ids_.empty() : !text_.empty() && text_.back() != '\n';
  if (open_line) session_.Print("\n");
}

ExitStatus Generation::OnTerminal(const v1::ServerFrame& frame) {
  if (frame.has_error()) {
    // Half a text of --no-stream is not shown as if it were one; JSON says what it is.
    if (whole_ != nullptr && whole_->tokens_size() > 0) session_.PrintJson(*whole_, "delta");
    if (!options_.no_stream) EndLine();
    return session_.Fail(frame.error(), options_.model);
  }
  if (!frame.has_done()) {
    return session_.Fail(Error(Reason::kProtocolError, "the daemon answered a generation with another reply"));
  }
  PrintHeldBack();
  EndLine();
  return OnDone(frame.done());
}

ExitStatus Generation::OnDone(const v1::Done& done) {
  if (session_.json()) session_.PrintJson(done, "done");
  if (done.finish_reason() == v1::FINISH_REASON_CANCELLED && !session_.interrupted()) {
    // Nobody here cancelled it, so its own deadline did.
    session_.Note(fmt::format("ended by --timeout after {} tokens", done.usage().completion_tokens()));
    return static_cast<ExitStatus>(ExitCode::kDeadline);
  }
  if (done.finish_reason() == v1::FINISH_REASON_LENGTH && options_.max_tokens == 0 && session_.chatty()) {
    session_.Note(fmt::format("the context of {} tokens is full; --context asks for more", context_));
  }
  return kOk;
}

}  // namespace bulkhead::cli
