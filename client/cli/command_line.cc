#include "client/cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string_view>

#include "base/build_id.h"
#include "base/reason.h"
#include "base/status.h"
#include "client/cli/text.h"
#include "client/cli/verbs.h"

namespace bulkhead::cli {
namespace {

constexpr char kModelHelp[] = "a name that `bulkhead models` shows, or a file whose path ends in .gguf";

constexpr char kFooter[] = R"(
Exit status: 0 done; 1 other failure; 2 usage; 3 refused by admission; 4 not found; 5 worker died; 6 ended by
somebody else; 7 daemon unreachable; 8 denied; 9 deadline; 130 Ctrl-C.
Socket: --socket, else $BULKHEAD_SOCKET, else $XDG_RUNTIME_DIR/bulkhead/bulkhead.sock (the user's daemon), else
/run/bulkhead/bulkhead.sock (the system's).
`bulkhead VERB --help` tells the flags of one verb.)";

// Options live as long as the closure that uses them.
template <typename Options>
using Shared = std::shared_ptr<Options>;

struct Builder {
  CLI::App& app;
  CommandLine& command;

  CLI::App* Verb(const std::string& name, const std::string& help, std::function<ExitStatus(Session&)> run) {
    CLI::App* verb = app.add_subcommand(name, help);
    verb->callback([this, run = std::move(run)] { command.verb = run; });
    verb->fallthrough();
    return verb;
  }
};

// CLI11 checks the text while parsing, so that a bad duration is a usage error like any other.
std::function<std::string(std::string)> DurationInto(uint64_t* milliseconds) {
  return [milliseconds](const std::string& text) {
    const auto parsed = ParseMilliseconds(text);
    if (!parsed.ok()) return Message(parsed.status());
    *milliseconds = *parsed;
    return std::string();
  };
}

CLI::Option* AddDuration(CLI::App* verb, const std::string& flag, uint64_t* milliseconds, const std::string& help) {
  return verb
      ->add_option_function<std::string>(
          flag, [milliseconds](const std::string& text) { *milliseconds = ParseMilliseconds(text).value_or(0); }, help)
      ->check(CLI::Validator(DurationInto(milliseconds), ""))
      ->type_name("DURATION");
}

void AddSampling(CLI::App* verb, RunOptions* o) {
  const std::string group = "Sampling (unset: the model file's own default, else the one shown)";
  verb->add_option("--temperature", o->temperature, "0 is greedy [0.8]")->check(CLI::NonNegativeNumber)->group(group);
  verb->add_option("--top-k", o->top_k, "0 is off [40]")->check(CLI::NonNegativeNumber)->group(group);
  verb->add_option("--top-p", o->top_p, "1 is off [0.95]")->check(CLI::Range(0.0, 1.0))->group(group);
  verb->add_option("--min-p", o->min_p, "0 is off [0.05]")->check(CLI::Range(0.0, 1.0))->group(group);
  verb->add_option("--repeat-penalty", o->repeat_penalty, "1 is off [1]")->check(CLI::PositiveNumber)->group(group);
  verb->add_option("--seed", o->seed, "same seed, same text [the daemon's choice]")->group(group);
  verb->add_option("--stop", o->stop, "end at this text, which is not printed; may be given several times")
      ->allow_extra_args(false)
      ->group(group);
  verb->add_flag("--ignore-eos", o->ignore_eos, "go on behind the model's own end")->group(group);
}

void AddRun(Builder& builder) {
  auto options = std::make_shared<RunOptions>();
  RunOptions* o = options.get();
  CLI::App* verb = builder.Verb("run", "Generate text; without PROMPT on a terminal, chat",
                                [options](Session& session) { return Run(session, *options); });
  verb->add_option("MODEL", o->model, kModelHelp)->required();
  verb->add_option("PROMPT", o->prompt,
                   "the prompt; - reads it from stdin, as does leaving it out where stdin is no terminal (a final "
                   "newline is dropped unless --raw)");
  verb->add_option("--system", o->system, "system message of the conversation");
  verb->add_option("--file", o->file, "a text file that follows the prompt")->type_name("PATH");
  verb->add_flag("--raw", o->raw, "give PROMPT to the model as it is, without the chat template");
  verb->add_option("--max-tokens", o->max_tokens, "end after so many tokens [the context's end]");
  verb->add_option("--context", o->context, "tokens the request may hold, prompt included [the model's default]");
  AddDuration(verb, "--timeout", &o->timeout_ms, "end after this time, such as 30s or 2m");
  verb->add_option("--priority", o->priority, "in the queue [normal]")
      ->check(CLI::IsMember({"interactive", "normal", "batch"}));
  verb->add_option("--on-worker-death", o->on_worker_death, "go on in another worker, or end [resume]")
      ->check(CLI::IsMember({"resume", "fail"}));
  verb->add_flag("--no-stream", o->no_stream, "print when all is there");
  verb->add_flag("--ids", o->ids, "print the ids of the tokens instead of their text");
  AddSampling(verb, o);
}

void AddLoad(Builder& builder) {
  const auto shape = [](CLI::App* verb, LoadOptions* o) {
    verb->add_option("MODEL", o->model, kModelHelp)->required();
    verb->add_option("--context", o->context, "tokens a sequence may hold [the model's default]");
    verb->add_option("--sequences", o->sequences, "sequences at once [the daemon's default]");
  };
  auto load = std::make_shared<LoadOptions>();
  CLI::App* verb = builder.Verb("load", "Load a model before it is asked for",
                                [load](Session& session) { return Load(session, *load); });
  shape(verb, load.get());
  verb->add_flag("--pin", load->pin, "keep it resident until it is released by name");
  auto preflight = std::make_shared<LoadOptions>();
  verb = builder.Verb("preflight", "Say whether a model would fit, and show the arithmetic",
                      [preflight](Session& session) { return Preflight(session, *preflight); });
  shape(verb, preflight.get());
}

void AddRelease(Builder& builder) {
  auto release = std::make_shared<ReleaseOptions>();
  ReleaseOptions* o = release.get();
  CLI::App* verb =
      builder.Verb("release", "End models' processes; returns once they are gone and their memory is accounted for",
                   [release](Session& session) { return Release(session, *release); });
  auto* models = verb->add_option("MODEL", o->models, "models to release");
  auto* all = verb->add_flag("--all", o->all, "every model")->excludes(models);
  // Its value is optional, and CLI11 then keeps a word of its own in its place.
  auto given = std::make_shared<std::string>();
  auto* idle_option = verb->add_option("--idle", *given, "models that nobody has used for this long [10m]")
                          ->expected(0, 1)
                          ->type_name("[DURATION]")
                          ->excludes(models)
                          ->excludes(all);
  verb->callback([o, idle_option, given, release, &command = builder.command] {
    if (idle_option->count() > 0) {
      const bool bare = given->empty() || *given == "true" || *given == "{}";
      const auto parsed = ParseMilliseconds(bare ? "10m" : *given);
      if (!parsed.ok()) throw CLI::ValidationError("--idle", Message(parsed.status()));
      o->idle_for_ms = *parsed;
    }
    if (o->models.empty() && !o->all && !o->idle_for_ms) throw CLI::RequiredError("MODEL, --all or --idle");
    command.verb = [release](Session& session) { return Release(session, *release); };
  });
  auto idle = std::make_shared<ReleaseOptions>();
  idle->idle_for_ms = 600'000;
  verb = builder.Verb("release-idle", "End the processes of models that nobody has used for a while",
                      [idle](Session& session) { return Release(session, *idle); });
  AddDuration(verb, "--idle-for", &*idle->idle_for_ms, "how long they have been idle [10m]");
}

void AddById(Builder& builder) {
  const auto add = [&](const std::string& name, const std::string& argument, const std::string& help,
                       ExitStatus (*run)(Session&, const std::string&)) {
    auto value = std::make_shared<std::string>();
    CLI::App* verb = builder.Verb(name, help, [value, run](Session& session) { return run(session, *value); });
    verb->add_option(argument, *value, argument == "ID" ? "an inference id, as `bulkhead ps --requests` shows it" : "")
        ->required();
  };
  add("terminate", "ID", "Kill the process that runs an inference, and wait until it is gone", &Terminate);
  add("cancel", "ID", "End an inference gently; its process lives on", &Cancel);
  add("unblock", "MODEL", "Allow a model again that was blocked for dying too often", &Unblock);
  add("show", "MODEL", "Show what a model's file says", &Show);
}

void AddPolicy(Builder& builder) {
  auto options = std::make_shared<PolicyOptions>();
  CLI::App* verb = builder.Verb("policy", "Show the policy in force and where each value comes from, or change it",
                                [options](Session& session) { return Policy(session, *options); });
  verb->require_subcommand(0, 1);
  CLI::App* get = verb->add_subcommand("get", "Show some values");
  get->add_option("NAME", options->get, "a value such as queue.wait, or a section such as queue [all]");
  CLI::App* set = verb->add_subcommand("set", "Change values until the next reload or restart (administrators)");
  set->add_option("NAME=VALUE", options->set, "such as queue.wait=30s")->required();
  for (CLI::App* part : {get, set}) part->fallthrough();
}

void AddQueries(Builder& builder) {
  auto ps = std::make_shared<PsOptions>();
  CLI::App* verb = builder.Verb("ps", "Show what is resident and what memory it is charged",
                                [ps](Session& session) { return Ps(session, *ps); });
  auto* requests = verb->add_flag("--requests", ps->requests, "show the requests instead");
  verb->add_flag("--memory", ps->memory, "show where the bytes are")->excludes(requests);
  builder.Verb("models", "List the models of the catalogue", [](Session& session) { return Models(session); });

  auto tokenize = std::make_shared<std::pair<std::string, std::string>>();
  verb = builder.Verb("tokenize", "Show the token ids of a text, special tokens parsed and added",
                      [tokenize](Session& session) { return Tokenize(session, tokenize->first, tokenize->second); });
  verb->add_option("MODEL", tokenize->first, kModelHelp)->required();
  verb->add_option("TEXT", tokenize->second, "the text")->required();

  auto last = std::make_shared<uint32_t>(0);
  verb = builder.Verb("deaths", "Tell how workers ended, with their last words",
                      [last](Session& session) { return Deaths(session, *last); });
  verb->add_option("--last", *last, "only the latest so many [all that are kept]");

  AddPolicy(builder);
  auto model = std::make_shared<std::string>();
  verb = builder.Verb("events", "Print the lives of workers and requests as they happen, until Ctrl-C",
                      [model](Session& session) { return Events(session, *model); });
  verb->add_option("--model", *model, "only of this model");
  builder.Verb("doctor", "Check what the daemon found on this machine",
               [](Session& session) { return Doctor(session); });
  builder.Verb("version", "Show the versions of client and daemon", [](Session& session) { return Version(session); });
}

// --json holds for usage errors too, wherever it stands.
bool AsksForJson(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--") return false;
    if (std::string_view(argv[i]) == "--json") return true;
  }
  return false;
}

ExitStatus TellUsage(const CLI::App& app, const char* what, bool json) {
  Session session({.socket = "", .json = json});
  const auto chosen = app.get_subcommands();
  session.Fail(Error(Reason::kInvalidRequest, what));
  session.Note(fmt::format("try: bulkhead {}--help", chosen.empty() ? "" : chosen.front()->get_name() + " "));
  return static_cast<ExitStatus>(ExitCode::kUsage);
}

}  // namespace

ParsedCommandLine ParseCommandLine(int argc, char** argv) {
  ParsedCommandLine parsed;
  CLI::App app("Runs language models on this machine, one isolated process per model.", "bulkhead");
  app.set_version_flag("--version", std::string(BuildId()));
  app.add_option("--socket", parsed.command.session.socket, "the daemon's socket")->type_name("PATH");
  app.add_flag("--json", parsed.command.session.json, "print JSON, one object a line");
  app.footer(kFooter);
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  Builder builder{app, parsed.command};
  AddRun(builder);
  AddQueries(builder);
  AddLoad(builder);
  AddRelease(builder);
  AddById(builder);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {
    app.exit(asked);
    parsed.exit = kOk;
  } catch (const std::exception& error) {
    parsed.exit = TellUsage(app, error.what(), AsksForJson(argc, argv));
  }
  return parsed;
}

}  // namespace bulkhead::cli
