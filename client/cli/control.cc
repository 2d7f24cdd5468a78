// Verbs that change what is resident or running.
#include <fmt/format.h>

#include <vector>

#include "base/reason.h"
#include "base/status.h"
#include "bulkhead/v1/client.pb.h"
#include "client/cli/progress.h"
#include "client/cli/text.h"
#include "client/cli/verbs.h"
#include "client/locate.h"

namespace bulkhead::cli {
namespace {

ExitStatus Exit(ExitCode code) { return static_cast<ExitStatus>(code); }

}  // namespace

ExitStatus Load(Session& session, const LoadOptions& options) {
  auto model = client::ResolveModel(options.model);
  if (!model.ok()) return session.Fail(model.status());
  v1::ClientFrame frame;
  v1::LoadRequest* request = frame.mutable_load();
  client::SetModelRef(*model, request->mutable_model());
  request->set_pin(options.pin);
  request->set_context(options.context);
  request->set_sequences(options.sequences);
  const v1::ServerFrame answer = session.Call(
      std::move(frame), std::move(model->file),
      [&](const v1::ServerFrame& event) { ShowWaiting(session, event, options.model); }, Session::OnInterrupt::kCancel);
  if (session.interrupted()) {
    session.Note("cancelled");
    return kInterrupted;
  }
  if (answer.has_error()) return session.Fail(answer.error(), options.model);
  const v1::LoadReply& reply = answer.load();
  if (session.json()) {
    session.PrintJson(reply, "loaded");
  } else {
    session.Print(fmt::format("{} {} as {}: {} sequences of {} tokens, {} charged\n", reply.model(),
                              reply.already_resident() ? "was already loaded" : "loaded", reply.allocation_id(),
                              reply.sequences(), reply.context(), HumanBytes(reply.charge_bytes())));
  }
  return kOk;
}

ExitStatus Preflight(Session& session, const LoadOptions& options) {
  auto model = client::ResolveModel(options.model);
  if (!model.ok()) return session.Fail(model.status());
  v1::ClientFrame frame;
  v1::PreflightRequest* request = frame.mutable_preflight();
  client::SetModelRef(*model, request->mutable_model());
  request->set_context(options.context);
  request->set_sequences(options.sequences);
  const v1::ServerFrame answer = session.Call(std::move(frame), std::move(model->file));
  if (answer.has_error()) return session.Fail(answer.error(), options.model);
  const v1::PreflightReply& reply = answer.preflight();
  if (session.json()) {
    session.PrintJson(reply);
  } else {
    std::vector<std::vector<std::string>> rows;
    for (const v1::PreflightLine& line : reply.lines()) {
      const auto magnitude = static_cast<uint64_t>(line.bytes() < 0 ? -line.bytes() : line.bytes());
      rows.push_back({line.what(), (line.bytes() < 0 ? "-" : "") + HumanBytes(magnitude), line.note()});
    }
    session.Print(Table({"WHAT", "BYTES", "NOTE"}, rows, {1}));
    session.Print(fmt::format("verdict: {} ({} sequences of {} tokens, {})\n", reply.verdict(), reply.sequences(),
                              reply.context(), HumanBytes(reply.estimate_bytes())));
    for (const std::string& victim : reply.would_release()) session.Print(fmt::format("would release {}\n", victim));
  }
  const auto reason = ReasonFromName(reply.verdict());
  return reason ? Exit(InfoOf(*reason).exit_code) : kOk;
}

ExitStatus Release(Session& session, const ReleaseOptions& options) {
  v1::ClientFrame frame;
  v1::ReleaseRequest* request = frame.mutable_release();
  for (const std::string& model : options.models) request->add_models(model);
  request->set_all(options.all);
  if (options.idle_for_ms) request->set_idle_for_ms(*options.idle_for_ms);
  session.Progress("releasing");
  const v1::ServerFrame answer = session.Call(std::move(frame));
  if (answer.has_error()) return session.Fail(answer.error(), options.models.empty() ? "" : options.models.front());
  const v1::ReleaseReply& reply = answer.release();
  if (session.json()) {
    session.PrintJson(reply);
  } else {
    for (const std::string& model : reply.released()) session.Print(fmt::format("released {}\n", model));
    for (const std::string& model : reply.not_resident()) session.Print(fmt::format("{} was not resident\n", model));
    if (reply.released_size() + reply.not_resident_size() + reply.unconfirmed_size() == 0) {
      session.Print("nothing to release\n");
    }
  }
  for (const std::string& model : reply.unconfirmed()) {
    session.Note(fmt::format("{}: its process was not seen to end yet; it stays charged and is tried further", model));
  }
  return reply.unconfirmed_size() == 0 ? kOk : Exit(ExitCode::kOther);
}

ExitStatus Terminate(Session& session, const std::string& inference_id) {
  v1::ClientFrame frame;
  frame.mutable_terminate()->set_inference_id(inference_id);
  session.Progress("terminating");
  const v1::ServerFrame answer = session.Call(std::move(frame));
  if (answer.has_error()) return session.Fail(answer.error());
  const v1::TerminateReply& reply = answer.terminate();
  if (session.json()) session.PrintJson(reply);
  const auto say = [&](const std::string& text) {
    if (!session.json()) session.Print(text + "\n");
  };
  switch (reply.ack()) {
    case v1::TerminateReply::CONFIRMED:
      say(fmt::format("terminated {}: {} ({})", inference_id, reply.how(), reply.allocation_id()));
      return kOk;
    case v1::TerminateReply::ALREADY_TERMINAL:
      say(fmt::format("{} had already ended", inference_id));
      return kOk;
    case v1::TerminateReply::NOT_RUNNING:
      session.Note(fmt::format("no inference {} is known; try: bulkhead ps --requests", inference_id));
      return Exit(ExitCode::kNotFound);
    default:
      session.Note(
          fmt::format("{}: not confirmed yet: {}; it stays charged and is tried further", inference_id, reply.why()));
      return Exit(ExitCode::kOther);
  }
}

ExitStatus Cancel(Session& session, const std::string& inference_id) {
  v1::ClientFrame frame;
  frame.mutable_cancel()->set_inference_id(inference_id);
  const v1::ServerFrame answer = session.Call(std::move(frame));
  if (answer.has_error()) return session.Fail(answer.error());
  if (session.json()) session.PrintJson(answer.cancel());
  if (!answer.cancel().found()) {
    session.Note(fmt::format("no inference {} is running; try: bulkhead ps --requests", inference_id));
    return Exit(ExitCode::kNotFound);
  }
  if (!session.json()) session.Print(fmt::format("cancelled {}\n", inference_id));
  return kOk;
}

ExitStatus Unblock(Session& session, const std::string& model) {
  v1::ClientFrame frame;
  frame.mutable_unblock()->set_model(model);
  const v1::ServerFrame answer = session.Call(std::move(frame));
  if (answer.has_error()) return session.Fail(answer.error(), model);
  if (session.json()) {
    session.PrintJson(answer.unblock());
  } else {
    session.Print(fmt::format("{} {}\n", model, answer.unblock().was_blocked() ? "unblocked" : "was not blocked"));
  }
  return kOk;
}

}  // namespace bulkhead::cli
