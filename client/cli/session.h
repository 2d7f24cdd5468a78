// One run of the command: where its output goes, its connection, Ctrl-C, and how failures are told. Main thread only.
#pragma once

#include <absl/status/status.h>
#include <google/protobuf/message.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/reason.h"
#include "client/blocking_client.h"

namespace bulkhead::cli {

// What a verb returns and main makes of it: a code of base/reason.h's ExitCode, or kInterrupted.
using ExitStatus = int;
// The user pressed Ctrl-C: main ends the process by the signal itself, so that a shell sees 130 and stops its loop.
inline constexpr ExitStatus kInterrupted = -1;
inline constexpr auto kOk = static_cast<ExitStatus>(ExitCode::kOk);
inline constexpr auto kOther = static_cast<ExitStatus>(ExitCode::kOther);

struct SessionOptions {
  std::string socket;  // empty: found as client/locate.h says
  bool json = false;
};

class Session {
 public:
  explicit Session(SessionOptions options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] bool json() const { return options_.json; }
  [[nodiscard]] bool stdout_is_terminal() const { return stdout_terminal_; }
  // Progress and notes: only on a terminal, and never beside JSON.
  [[nodiscard]] bool chatty() const { return stderr_terminal_ && !options_.json; }

  // Connects to the first candidate that answers. Calls connect by themselves.
  absl::Status Connect();
  // The path that answered.
  [[nodiscard]] const std::string& socket_path() const { return socket_path_; }

  enum class OnInterrupt {
    kLeave,   // close the connection and go: the daemon gives up what was asked
    kCancel,  // ask the daemon to cancel and wait for the request's terminal; a second Ctrl-C leaves at once
  };

  // Sends and waits for the terminal, connection failures included: those are `error` frames as well.
  v1::ServerFrame Call(v1::ClientFrame frame, UniqueFd descriptor = {}, const client::FrameSink& on_event = {},
                       OnInterrupt on_interrupt = OnInterrupt::kLeave);
  // Whether Ctrl-C was pressed during the last Call.
  [[nodiscard]] bool interrupted() const { return interrupted_; }

  [[nodiscard]] client::BlockingClient* client() { return client_.get(); }

  // `text` to stdout, flushed. A closed pipe ends the process silently, by SIGPIPE.
  void Print(std::string_view text);
  // The user pressed Enter: the cursor is at a line's start again.
  void LineWasEnded() { mid_line_ = false; }
  // One JSON object as a line.
  void PrintJson(const google::protobuf::Message& message, std::string_view event = {});
  // A line to stderr, "bulkhead: ..." in front, after clearing a progress line.
  void Note(std::string_view text);

  // Tells a failure on stderr with the next command to try, and as {"event":"error"} on stdout with --json; returns the
  // exit code of its reason. `model` fills in hints.
  ExitStatus Fail(const v1::ErrorEvent& error, std::string_view model = {});
  ExitStatus Fail(const absl::Status& status, std::string_view model = {});

  // One line on stderr that is drawn over; only where chatty().
  void Progress(std::string_view text);
  void ClearProgress();

 private:
  struct Interrupts;

  SessionOptions options_;
  bool stdout_terminal_;
  bool stderr_terminal_;
  bool progress_shown_ = false;
  bool interrupted_ = false;
  bool mid_line_ = false;  // stdout is a terminal and its cursor is not at a line's start
  std::string socket_path_;
  std::unique_ptr<client::BlockingClient> client_;
};

// The next command to try after `reason`; empty where there is none.
std::string HintFor(const v1::ErrorEvent& error, std::string_view model);

// "[#####.....] 50 %", `width` characters of bar; an empty total gives an empty text.
std::string ProgressBar(uint64_t done, uint64_t total, int width = 30);

}  // namespace bulkhead::cli
