// One generation of `bulkhead run`: builds the request, shows its events as they come, tells its end. Main thread only.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

#include "client/cli/session.h"
#include "client/cli/verbs.h"

namespace bulkhead::v1 {
class Delta;
class Done;
}  // namespace bulkhead::v1

namespace bulkhead::cli {

struct ChatMessage {
  std::string role;
  std::string content;
};

class Generation {
 public:
  Generation(Session& session, const RunOptions& options);
  ~Generation();

  // Through the model's template. Both return the exit status; kInterrupted after Ctrl-C.
  ExitStatus RunMessages(const std::vector<ChatMessage>& messages);
  ExitStatus RunRaw(const std::string& prompt);

  // What was produced, also where it ended early.
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  ExitStatus Run(v1::ClientFrame frame);
  absl::Status Prepare(v1::ClientFrame* frame, UniqueFd* descriptor) const;
  void OnEvent(const v1::ServerFrame& frame);
  void OnDelta(const v1::Delta& delta);
  void PrintHeldBack();
  ExitStatus OnTerminal(const v1::ServerFrame& frame);
  ExitStatus OnDone(const v1::Done& done);
  void EndLine();

  Session& session_;
  const RunOptions& options_;
  std::string text_;
  std::vector<int32_t> ids_;
  uint32_t context_ = 0;
  std::unique_ptr<v1::Delta> whole_;  // --no-stream with --json
};

}  // namespace bulkhead::cli
