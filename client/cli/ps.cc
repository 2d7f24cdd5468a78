// Verbs that show what is resident and running.
#include <fmt/format.h>

#include <vector>

#include "base/reason.h"
#include "bulkhead/v1/client.pb.h"
#include "client/cli/text.h"
#include "client/cli/verbs.h"

namespace bulkhead::cli {
namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string_view PriorityName(v1::Priority priority) {
  if (priority == v1::PRIORITY_INTERACTIVE) return "interactive";
  return priority == v1::PRIORITY_BATCH ? "batch" : "normal";
}

std::string Use(const v1::ResidentModel& model) {
  std::string use = model.in_flight() > 0  ? fmt::format("{} running", model.in_flight())
                    : model.idle_ms() >= 0 ? "idle " + HumanMilliseconds(model.idle_ms())
                                           : "-";
  if (model.waiting() > 0) use += fmt::format(", {} waiting", model.waiting());
  if (model.pinned()) use += ", pinned";
  if (model.deadline_in_ms() > 0) use += ", at most " + HumanMilliseconds(static_cast<int64_t>(model.deadline_in_ms()));
  return use;
}

std::string ModelTable(const v1::PsReply& reply) {
  Rows rows;
  for (const v1::ResidentModel& model : reply.models()) {
    rows.push_back({model.model(), model.allocation_id(), model.state(), fmt::format("{}", model.pid()),
                    HumanBytes(model.charge_bytes()), HumanBytes(model.measured_bytes()),
                    fmt::format("{} x {}", model.sequences(), model.context()), Use(model)});
  }
  return Table({"MODEL", "ALLOCATION", "STATE", "PID", "CHARGE", "MEASURED", "CONTEXT", "USE"}, rows, {3, 4, 5, 6});
}

// A line for each engine that has said how it is.
std::string EngineLines(const v1::PsReply& reply) {
  std::string lines;
  for (const v1::ResidentModel& model : reply.models()) {
    if (model.heartbeat_ms() < 0 || model.engine().kv_pages_total() == 0) continue;
    const v1::EngineSnapshot& engine = model.engine();
    lines += fmt::format("{}: {} sequences{}, pages {} used + {} kept of {}", model.allocation_id(),
                         engine.active_prefill() + engine.active_decode(),
                         engine.waiting() > 0 ? fmt::format(" + {} waiting", engine.waiting()) : "",
                         engine.kv_pages_total() - engine.kv_pages_free() - engine.kv_pages_idle(),
                         engine.kv_pages_idle(), engine.kv_pages_total());
    lines += fmt::format("; prompts: {} hits, {} misses, {} tokens saved, {} pages evicted", engine.prefix_hits(),
                         engine.prefix_misses(), engine.prefix_saved_tokens(), engine.prefix_evictions());
    if (engine.preemptions() > 0) lines += fmt::format("; {} preempted", engine.preemptions());
    lines += fmt::format("; {} {} ago\n", engine.healthy() ? "heard" : "stuck, heard",
                         HumanMilliseconds(model.heartbeat_ms()));
  }
  return lines;
}

std::string RequestTable(const v1::PsReply& reply) {
  Rows rows;
  for (const v1::RequestInfo& request : reply.requests()) {
    rows.push_back({request.inference_id(), request.model(),
                    request.allocation_id().empty() ? "-" : request.allocation_id(), request.state(),
                    fmt::format("{}", request.uid()), HumanMilliseconds(request.age_ms()),
                    fmt::format("{}", request.prompt_tokens()), fmt::format("{}", request.produced()),
                    std::string(PriorityName(request.priority()))});
  }
  return Table({"INFERENCE", "MODEL", "ALLOCATION", "STATE", "UID", "AGE", "PROMPT", "PRODUCED", "PRIORITY"}, rows,
               {4, 5, 6, 7});
}

std::string MemoryTable(const v1::PsReply& reply) {
  Rows rows;
  for (const v1::ResidentModel& model : reply.models()) {
    rows.push_back({model.allocation_id(), HumanBytes(model.charge_bytes()), HumanBytes(model.estimate_bytes()),
                    HumanBytes(model.private_bytes()), HumanBytes(model.measured_bytes()),
                    HumanBytes(model.shared_bytes()), HumanBytes(model.file_bytes()), HumanBytes(model.share_bytes())});
  }
  return Table({"ALLOCATION", "CHARGE", "ESTIMATE", "PRIVATE", "PEAK", "WEIGHTS", "SHARED", "ITS PART"}, rows,
               {1, 2, 3, 4, 5, 6, 7});
}

std::string BudgetLine(const v1::Budget& budget) {
  std::string line =
      fmt::format("{} of {} charged (profile {})", HumanBytes(budget.charged_bytes()),
                  budget.ceiling_bytes() == 0 ? "no limit" : HumanBytes(budget.ceiling_bytes()), budget.profile());
  if (budget.promised_bytes() > 0) line += fmt::format(", {} promised", HumanBytes(budget.promised_bytes()));
  line += fmt::format(", {} of memory free for models", HumanBytes(budget.live_headroom_bytes()));
  if (budget.waiting() > 0) {
    line += fmt::format("; {} waiting, the oldest for {}", budget.waiting(),
                        HumanMilliseconds(static_cast<int64_t>(budget.oldest_waiting_ms())));
  }
  return line + "\n";
}

}  // namespace

ExitStatus Ps(Session& session, const PsOptions& options) {
  v1::ClientFrame frame;
  frame.mutable_ps()->set_requests(options.requests);
  frame.mutable_ps()->set_memory(options.memory);
  const v1::ServerFrame answer = session.Call(std::move(frame));
  if (answer.has_error()) return session.Fail(answer.error());
  const v1::PsReply& reply = answer.ps();
  if (session.json()) {
    session.PrintJson(reply);
  } else {
    session.Print(options.requests ? RequestTable(reply) : options.memory ? MemoryTable(reply) : ModelTable(reply));
    if (!options.requests && !options.memory) session.Print(Printable(EngineLines(reply)));
    session.Print(BudgetLine(reply.budget()));
    for (const std::string& warning : reply.warnings()) session.Note("warning: " + warning);
  }
  return kOk;
}

ExitStatus Models(Session& session) {
  v1::ClientFrame frame;
  frame.mutable_models();
  const v1::ServerFrame answer = session.Call(std::move(frame));
  if (answer.has_error()) return session.Fail(answer.error());
  const v1::ModelsReply& reply = answer.models();
  if (session.json()) {
    session.PrintJson(reply);
    return kOk;
  }
  Rows rows;
  for (const v1::CatalogModel& model : reply.models()) {
    std::string note = model.resident() ? "resident" : "";
    if (model.pinned()) note += note.empty() ? "pinned" : ", pinned";
    if (model.blocked()) note += fmt::format("{}blocked: bulkhead unblock {}", note.empty() ? "" : ", ", model.model());
    if (!model.problem().empty()) note += (note.empty() ? "" : ", ") + model.problem();
    rows.push_back({model.model(), HumanBytes(model.file_bytes()), note, model.path()});
  }
  session.Print(Table({"MODEL", "SIZE", "NOTE", "PATH"}, rows, {1}));
  for (const std::string& problem : reply.problems()) session.Note(problem);
  return kOk;
}

}  // namespace bulkhead::cli
