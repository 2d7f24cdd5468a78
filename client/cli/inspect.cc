// Verbs that explain a model or the daemon.
#include <fmt/format.h>

#include <ctime>
#include <vector>

#include "base/build_id.h"
#include "base/reason.h"
#include "base/status.h"
#include "bulkhead/v1/client.pb.h"
#include "client/cli/json.h"
#include "client/cli/text.h"
#include "client/cli/verbs.h"
#include "client/locate.h"

namespace bulkhead::cli {
namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string LocalTime(int64_t unix_ns) {
  const auto seconds = static_cast<time_t>(unix_ns / 1'000'000'000);
  tm parts{};
  localtime_r(&seconds, &parts);
  char text[32];
  const size_t length = strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &parts);
  return {text, length};
}

std::string ManifestText(const v1::ShowReply& reply) {
  const v1::Manifest& m = reply.manifest();
  std::string text;
  const auto line = [&](std::string_view what, std::string_view value) {
    text += fmt::format("{:<18}{}\n", what, value);
  };
  line("model", reply.model());
  line("name", m.name());
  line("architecture", m.architecture());
  line("parameters", fmt::format("{}", m.parameters()));
  line("weights", fmt::format("{}, mostly {}", HumanBytes(m.weight_bytes()), m.quantisation()));
  line("file", HumanBytes(m.file_bytes()));
  line("trained context", fmt::format("{} tokens", m.trained_context()));
  line("layers", fmt::format("{}", m.layers()));
  line("embedding", fmt::format("{}", m.embedding()));
  line("heads",
       fmt::format("{}, {} for keys and values of {}/{}", m.heads(), m.kv_heads(), m.key_length(), m.value_length()));
  line("vocabulary", fmt::format("{}, tokenizer {}", m.vocabulary(), m.tokenizer()));
  line("chat template", m.chat_template());
  line("memory a token", HumanBytes(m.kv_bytes_per_token()));
  line("and a sequence", HumanBytes(m.recurrent_bytes_per_sequence()));
  line("by default", fmt::format("{} sequences of {} tokens", reply.default_sequences(), reply.default_context()));
  return text;
}

std::string EndOf(const v1::Death& death) {
  if (death.signal() != 0) return fmt::format("signal {}", death.signal());
  return fmt::format("exit {}", death.exit_code());
}

// Leaves the values that `names` ask for, each the name of a value or of a section.
absl::Status KeepNamed(const std::vector<std::string>& names, v1::PolicyReply* reply) {
  if (names.empty()) return absl::OkStatus();
  google::protobuf::RepeatedPtrField<v1::PolicyValue> kept;
  for (const std::string& name : names) {
    const int before = kept.size();
    for (const v1::PolicyValue& value : reply->values()) {
      if (value.name() == name || value.name().starts_with(name + ".")) *kept.Add() = value;
    }
    if (kept.size() == before) {
      return Error(Reason::kInvalidRequest, fmt::format("policy: no value is called \"{}\"", name));
    }
  }
  reply->mutable_values()->Swap(&kept);
  return absl::OkStatus();
}

}  // namespace

ExitStatus Show(Session& session, const std::string& name) {
  auto model = client::ResolveModel(name);
  if (!model.ok()) return session.Fail(model.status());
  v1::ClientFrame frame;
  client::SetModelRef(*model, frame.mutable_show()->mutable_model());
  const v1::ServerFrame answer = session.Call(std::move(frame), std::move(model->file));
  if (answer.has_error()) return session.Fail(answer.error(), name);
  if (session.json()) {
    session.PrintJson(answer.show());
  } else {
    session.Print(Printable(ManifestText(answer.show())));
  }
  return kOk;
}

ExitStatus Tokenize(Session& session, const std::string& name, const std::string& text) {
  auto model = client::ResolveModel(name);
  if (!model.ok()) return session.Fail(model.status());
  if (const size_t at = FirstInvalidUtf8(text); at != std::string::npos) {
    return session.Fail(Error(Reason::kInvalidRequest, fmt::format("TEXT: byte {} is not UTF-8", at)));
  }
  v1::ClientFrame frame;
  v1::TokenizeRequest* request = frame.mutable_tokenize();
  client::SetModelRef(*model, request->mutable_model());
  request->set_text(text);
  request->set_add_special(true);
  request->set_parse_special(true);
  const v1::ServerFrame answer = session.Call(std::move(frame), std::move(model->file));
  if (answer.has_error()) return session.Fail(answer.error(), name);
  if (session.json()) {
    session.PrintJson(answer.tokenize());
  } else {
    std::string ids;
    for (const int32_t id : answer.tokenize().ids()) ids += fmt::format("{}{}", ids.empty() ? "" : " ", id);
    session.Print(ids + "\n");
  }
  return kOk;
}

ExitStatus Deaths(Session& session, uint32_t last) {
  v1::ClientFrame frame;
  frame.mutable_deaths()->set_last(last);
  const v1::ServerFrame answer = session.Call(std::move(frame));
  if (answer.has_error()) return session.Fail(answer.error());
  const v1::DeathsReply& reply = answer.deaths();
  if (session.json()) {
    session.PrintJson(reply);
    return kOk;
  }
  Rows rows;
  for (const v1::Death& death : reply.deaths()) {
    rows.push_back({fmt::format("{}", death.death_id()), LocalTime(death.at_unix_ns()), death.allocation_id(),
                    std::string(death.planned() ? "planned" : NameOf(static_cast<Reason>(death.reason()))),
                    death.phase(), EndOf(death), fmt::format("{}", death.requests_in_flight()), death.detail()});
  }
  session.Print(Table({"ID", "TIME", "ALLOCATION", "REASON", "PHASE", "END", "REQUESTS", "DETAIL"}, rows, {0, 6}));
  for (const v1::Death& death : reply.deaths()) {
    if (death.planned() || death.stderr_tail().empty()) continue;
    session.Print(fmt::format("\nlast words of {}:\n{}", death.allocation_id(), Printable(death.stderr_tail())));
    if (!death.stderr_tail().ends_with('\n')) session.Print("\n");
  }
  return kOk;
}

ExitStatus Policy(Session& session, const PolicyOptions& options) {
  v1::ClientFrame frame;
  v1::PolicyRequest* request = frame.mutable_policy();
  for (const std::string& assignment : options.set) {
    const size_t equals = assignment.find('=');
    if (equals == std::string::npos || equals == 0) {
      return session.Fail(Error(Reason::kInvalidRequest, fmt::format("\"{}\" is not NAME=VALUE", assignment)));
    }
    (*request->mutable_set())[assignment.substr(0, equals)] = assignment.substr(equals + 1);
  }
  const v1::ServerFrame answer = session.Call(std::move(frame));
  if (answer.has_error()) return session.Fail(answer.error());
  v1::PolicyReply reply = answer.policy();
  if (absl::Status status = KeepNamed(options.get, &reply); !status.ok()) return session.Fail(status);
  if (session.json()) {
    session.PrintJson(reply);
    return kOk;
  }
  Rows rows;
  for (const v1::PolicyValue& value : reply.values()) rows.push_back({value.name(), value.value(), value.origin()});
  session.Print(Table({"NAME", "VALUE", "FROM"}, rows, {}));
  session.Print(fmt::format("generation {}\n", reply.generation()));
  return kOk;
}

ExitStatus Events(Session& session, const std::string& model) {
  v1::ClientFrame frame;
  frame.mutable_events()->set_model(model);
  const auto show = [&](const v1::ServerFrame& received) {
    if (!received.has_event()) return;
    const v1::Event& event = received.event();
    if (session.json()) return session.PrintJson(event);
    session.Print(
        Printable(fmt::format("{}  {:<22} {:<22} {}{}{}\n", LocalTime(event.at_unix_ns()), event.what(),
                              event.subject(), event.model(), event.detail().empty() ? "" : "  ", event.detail())));
  };
  const v1::ServerFrame end = session.Call(std::move(frame), {}, show, Session::OnInterrupt::kCancel);
  if (session.interrupted()) return kInterrupted;
  if (end.has_error()) return session.Fail(end.error(), model);
  return kOk;
}

ExitStatus Doctor(Session& session) {
  v1::ClientFrame frame;
  frame.mutable_doctor();
  const v1::ServerFrame answer = session.Call(std::move(frame));
  if (answer.has_error()) return session.Fail(answer.error());
  v1::DoctorReply reply = answer.doctor();
  const v1::Hello* hello = session.client()->connection().server_hello();
  if (hello != nullptr && hello->build() != BuildId()) {
    v1::DoctorFinding* finding = reply.add_findings();
    finding->set_what("client build");
    finding->set_status("warn");
    finding->set_detail(fmt::format("this client is {}, the daemon {}", BuildId(), hello->build()));
  }
  bool failed = false;
  Rows rows;
  for (const v1::DoctorFinding& finding : reply.findings()) {
    failed = failed || finding.status() == "fail";
    rows.push_back({finding.status(), finding.what(), finding.detail()});
  }
  if (session.json()) {
    session.PrintJson(reply);
  } else {
    session.Print(Printable(Table({"STATUS", "WHAT", "DETAIL"}, rows, {})));
  }
  return failed ? kOther : kOk;
}

ExitStatus Version(Session& session) {
  // Any reply proves that Hello has come; a daemon that is away is no failure here.
  v1::ClientFrame frame;
  frame.mutable_models();
  const v1::ServerFrame answer = session.Call(std::move(frame));
  const v1::Hello* hello = session.client() == nullptr ? nullptr : session.client()->connection().server_hello();
  if (session.json()) {
    session.Print(fmt::format(
        R"({{"version":{},"build":{},"daemon_build":{},"protocol":{},"numerics":{},"degraded":{}}})"
        "\n",
        JsonString(bulkhead::Version()), JsonString(BuildId()), JsonString(hello ? hello->build() : ""),
        hello ? hello->protocol_max() : 0, hello ? hello->numerics() : 0, JsonString(hello ? hello->degraded() : "")));
    return kOk;
  }
  session.Print(fmt::format("bulkhead {}\n", BuildId()));
  if (hello == nullptr) {
    session.Print("daemon not reached\n");
  } else {
    session.Print(fmt::format("bulkheadd {} at {} (protocol {}, numerics {}){}\n", hello->build(),
                              session.socket_path(), hello->protocol_max(), hello->numerics(),
                              hello->degraded().empty() ? "" : ", degraded: " + hello->degraded()));
  }
  return kOk;
}

}  // namespace bulkhead::cli
