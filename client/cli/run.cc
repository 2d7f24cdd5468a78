#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <iostream>

#include "base/reason.h"
#include "base/status.h"
#include "base/sys.h"
#include "client/cli/generation.h"
#include "client/cli/verbs.h"

namespace bulkhead::cli {
namespace {

// A frame holds at most 64 MiB; what is longer is refused before it is read to its end.
constexpr size_t kMaxInput = 64 << 20;

absl::StatusOr<std::string> ReadAll(int fd, std::string_view name) {
  std::string text;
  char buffer[64 << 10];
  while (true) {
    const ssize_t got = sys::Read(fd, buffer, sizeof(buffer));
    if (got == -EINTR) continue;
    if (got < 0) {
      char words[128];
      return Error(Reason::kInvalidRequest,
                   fmt::format("{}: {}", name, strerror_r(static_cast<int>(-got), words, sizeof(words))));
    }
    if (got == 0) return text;
    text.append(buffer, static_cast<size_t>(got));
    if (text.size() > kMaxInput) {
      return Error(Reason::kFrameTooLarge,
                   fmt::format("{}: longer than the {} bytes a request may hold", name, kMaxInput));
    }
  }
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const int fd = sys::Open(path.c_str(), O_RDONLY);
  if (fd < 0) {
    char words[128];
    return Error(Reason::kInvalidRequest, fmt::format("--file {}: {}", path, strerror_r(-fd, words, sizeof(words))));
  }
  const UniqueFd file(fd);
  return ReadAll(file.get(), path);
}

// The prompt from argument, file and stdin, as `run --help` describes it.
absl::StatusOr<std::string> GatherPrompt(const RunOptions& options) {
  std::string text;
  const bool from_stdin = options.prompt ? *options.prompt == "-" : options.file.empty();
  if (from_stdin) {
    ASSIGN_OR_RETURN(text, ReadAll(STDIN_FILENO, "stdin"));
    // echo's newline is not part of what was asked; with --raw every byte counts.
    if (!options.raw && text.ends_with('\n')) text.pop_back();
  } else if (options.prompt) {
    text = *options.prompt;
  }
  if (!options.file.empty()) {
    ASSIGN_OR_RETURN(const std::string file, ReadFile(options.file));
    text += (text.empty() ? "" : "\n\n") + file;
  }
  return text;
}

// One turn's answer goes into the conversation even where Ctrl-C cut it short: the user has read it.
ExitStatus ChatLoop(Session& session, const RunOptions& options) {
  if (absl::Status status = session.Connect(); !status.ok()) return session.Fail(status);
  session.Note("chat; an empty line is skipped, /clear forgets the conversation, Ctrl-D ends");
  std::vector<ChatMessage> conversation;
  const auto clear = [&] {
    conversation.clear();
    if (!options.system.empty()) conversation.push_back({"system", options.system});
  };
  clear();
  std::string line;
  while (true) {
    session.Print("> ");
    // SIGINT has its default action here, so Ctrl-C at the prompt ends the process.
    if (!std::getline(std::cin, line)) break;
    session.LineWasEnded();
    if (line.empty()) continue;
    if (line == "/clear") {
      clear();
      continue;
    }
    conversation.push_back({"user", line});
    Generation generation(session, options);
    const ExitStatus status = generation.RunMessages(conversation);
    if (status == static_cast<ExitStatus>(ExitCode::kUnreachable)) return status;
    if (generation.text().empty()) {
      conversation.pop_back();
    } else {
      conversation.push_back({"assistant", generation.text()});
    }
  }
  session.Print("\n");
  return kOk;
}

}  // namespace

ExitStatus Run(Session& session, const RunOptions& options) {
  if (options.raw && !options.system.empty()) {
    return session.Fail(Error(Reason::kInvalidRequest, "--system needs the model's template, which --raw leaves out"));
  }
  const bool terminal = isatty(STDIN_FILENO) == 1 && session.stdout_is_terminal() && !session.json();
  if (!options.prompt && options.file.empty() && !options.raw && terminal) return ChatLoop(session, options);
  auto prompt = GatherPrompt(options);
  if (!prompt.ok()) return session.Fail(prompt.status());
  Generation generation(session, options);
  if (options.raw) return generation.RunRaw(*prompt);
  std::vector<ChatMessage> messages;
  if (!options.system.empty()) messages.push_back({"system", options.system});
  messages.push_back({"user", *std::move(prompt)});
  return generation.RunMessages(messages);
}

}  // namespace bulkhead::cli
