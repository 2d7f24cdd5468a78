// Runs the real `bulkhead` program and keeps what it said.
#pragma once

#include <string>
#include <vector>

namespace bulkhead {

struct Outcome {
  std::string out;
  std::string err;
  int exit_code = -1;  // -1 where a signal ended it
  int signal = 0;

  // The lines of `out`.
  [[nodiscard]] std::vector<std::string> lines() const;
};

// A started command, to be signalled or read from in pieces. Its environment is empty.
class RunningBulkhead {
 public:
  // `input` is its stdin, a pipe.
  explicit RunningBulkhead(const std::vector<std::string>& arguments, const std::string& input = "");
  ~RunningBulkhead();
  RunningBulkhead(const RunningBulkhead&) = delete;
  RunningBulkhead& operator=(const RunningBulkhead&) = delete;

  // Reads until the stream contains `text`; false if it ended without, or was silent for ten seconds.
  bool WaitForOutput(const std::string& text);
  bool WaitForError(const std::string& text);
  void CloseOutput();
  void Signal(int signal);
  // Waits for its end.
  Outcome Finish();

 private:
  static bool Fill(int* fd, std::string* into, const std::string& until);

  int pid_ = -1;
  int out_ = -1;
  int err_ = -1;
  Outcome outcome_;
};

Outcome RunBulkhead(const std::vector<std::string>& arguments, const std::string& input = "");

}  // namespace bulkhead
