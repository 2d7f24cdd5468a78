#include "client/cli/session.h"

#include <fmt/format.h>
#include <unistd.h>
#include <uv.h>

#include <algorithm>
#include <csignal>
#include <cstdio>

#include "base/status.h"
#include "bulkhead/v1/client.pb.h"
#include "client/cli/json.h"
#include "client/cli/text.h"
#include "client/locate.h"

namespace bulkhead::cli {

// SIGINT during one call. libuv restores the default action once this is gone.
struct Session::Interrupts {
  Interrupts(Session* owner, OnInterrupt action) : session(owner), on_interrupt(action) {
    uv_signal_init(session->client_->loop(), &handle);
    handle.data = this;
    uv_signal_start(
        &handle, [](uv_signal_t* signal, int) { static_cast<Interrupts*>(signal->data)->OnSignal(); }, SIGINT);
  }
  ~Interrupts() {
    bool closed = false;
    handle.data = &closed;
    uv_close(reinterpret_cast<uv_handle_t*>(&handle), [](uv_handle_t* h) { *static_cast<bool*>(h->data) = true; });
    while (!closed) uv_run(session->client_->loop(), UV_RUN_NOWAIT);
  }

  void OnSignal() {
    const bool again = std::exchange(session->interrupted_, true);
    if (again || on_interrupt == OnInterrupt::kLeave) {
      session->ClearProgress();
      if (!again) session->Note("interrupted");
      std::signal(SIGINT, SIG_DFL);
      std::raise(SIGINT);
      return;
    }
    session->Note("cancelling; Ctrl-C again leaves at once");
    session->client_->connection().Cancel(request_id);
  }

  Session* session;
  OnInterrupt on_interrupt;
  uint64_t request_id = 0;
  uv_signal_t handle;
};

Session::Session(SessionOptions options)
    : options_(std::move(options)),
      stdout_terminal_(isatty(STDOUT_FILENO) == 1),
      stderr_terminal_(isatty(STDERR_FILENO) == 1) {}

Session::~Session() { ClearProgress(); }

absl::Status Session::Connect() {
  if (client_ != nullptr) return absl::OkStatus();
  std::string tried;
  absl::Status failure;
  for (const std::string& path : client::SocketCandidates(options_.socket)) {
    auto client = client::BlockingClient::Connect(path);
    if (client.ok()) {
      client_ = *std::move(client);
      socket_path_ = path;
      return absl::OkStatus();
    }
    failure = client.status();
    // A socket that exists but is not for this user is the answer, not a reason to look for another daemon.
    if (ReasonOf(failure) == Reason::kPermissionDenied) return failure;
    tried += (tried.empty() ? "" : "; ") + Message(failure);
  }
  return Error(ReasonOf(failure), ReasonOf(failure) == Reason::kDaemonUnreachable
                                      ? fmt::format("no daemon answers: {}", tried)
                                      : Message(failure));
}

v1::ServerFrame Session::Call(v1::ClientFrame frame, UniqueFd descriptor, const client::FrameSink& on_event,
                              OnInterrupt on_interrupt) {
  interrupted_ = false;
  if (absl::Status status = Connect(); !status.ok()) {
    v1::ServerFrame failed;
    *failed.mutable_error() = client::ErrorEventOf(status);
    return failed;
  }
  Interrupts interrupts(this, on_interrupt);
  v1::ServerFrame terminal = client_->Call(std::move(frame), std::move(descriptor), on_event,
                                           [&](uint64_t id) { interrupts.request_id = id; });
  ClearProgress();
  return terminal;
}

void Session::Print(std::string_view text) {
  if (text.empty()) return;
  ClearProgress();
  mid_line_ = stdout_terminal_ && text.back() != '\n';
  const size_t written = std::fwrite(text.data(), 1, text.size(), stdout);
  if (written != text.size() || std::fflush(stdout) != 0) {
    // A reader that left has already ended us by SIGPIPE; what remains is a full disk and its like.
    std::perror("bulkhead: stdout");
    std::_Exit(static_cast<int>(ExitCode::kOther));
  }
}

void Session::PrintJson(const google::protobuf::Message& message, std::string_view event) {
  Print(ToJson(message, event) + "\n");
}

void Session::Note(std::string_view text) {
  ClearProgress();
  const std::string line = fmt::format("{}bulkhead: {}\n", mid_line_ && stderr_terminal_ ? "\n" : "",
                                       stderr_terminal_ ? Printable(text) : text);
  mid_line_ = false;
  std::fwrite(line.data(), 1, line.size(), stderr);
}

ExitStatus Session::Fail(const v1::ErrorEvent& error, std::string_view model) {
  const ReasonInfo& info = InfoOf(static_cast<Reason>(error.reason()));
  v1::ErrorEvent told = error;
  if (told.hint().empty()) told.set_hint(HintFor(error, model));
  if (json()) PrintJson(told, "error");
  Note(fmt::format("{}: {}", info.name, told.message()));
  if (told.retry_after_ms() > 0) {
    Note(fmt::format("may be tried again in {}", HumanMilliseconds(static_cast<int64_t>(told.retry_after_ms()))));
  }
  if (!told.hint().empty()) Note(fmt::format("try: {}", told.hint()));
  return static_cast<ExitStatus>(info.exit_code);
}

ExitStatus Session::Fail(const absl::Status& status, std::string_view model) {
  return Fail(client::ErrorEventOf(status), model);
}

void Session::Progress(std::string_view text) {
  if (!chatty() || mid_line_) return;
  const std::string line = fmt::format("\r\033[K{}", Printable(text));
  std::fwrite(line.data(), 1, line.size(), stderr);
  progress_shown_ = true;
}

void Session::ClearProgress() {
  if (!std::exchange(progress_shown_, false)) return;
  std::fputs("\r\033[K", stderr);
}

std::string ProgressBar(uint64_t done, uint64_t total, int width) {
  if (total == 0) return "";
  const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const auto full = static_cast<size_t>(share * width);
  return fmt::format("[{}{}] {:.0f} %", std::string(full, '#'), std::string(static_cast<size_t>(width) - full, '.'),
                     share * 100);
}

}  // namespace bulkhead::cli
