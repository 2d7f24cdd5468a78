#include "tests/client/command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>

namespace bulkhead {
namespace {

constexpr int kPatienceMs = 10'000;

void CloseAndForget(int* fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

int Spawn(const std::vector<std::string>& arguments, int in, int out, int err) {
  std::vector<std::string> all = {BULKHEAD_PROGRAM};
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& text : all) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  char* environment[] = {nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in, 0);
  posix_spawn_file_actions_adddup2(&actions, out, 1);
  posix_spawn_file_actions_adddup2(&actions, err, 2);
  int pid = -1;
  if (posix_spawn(&pid, BULKHEAD_PROGRAM, &actions, nullptr, pointers.data(), environment) != 0) pid = -1;
  posix_spawn_file_actions_destroy(&actions);
  return pid;
}

}  // namespace

std::vector<std::string> Outcome::lines() const {
  std::vector<std::string> lines;
  std::istringstream stream(out);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

RunningBulkhead::RunningBulkhead(const std::vector<std::string>& arguments, const std::string& input) {
  int in[2], out[2], err[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) return;
  pid_ = Spawn(arguments, in[0], out[1], err[1]);
  close(in[0]);
  close(out[1]);
  close(err[1]);
  // Inputs of these tests fit a pipe's buffer.
  if (!input.empty() && write(in[1], input.data(), input.size()) < 0) outcome_.err = "stdin was not taken\n";
  close(in[1]);
  out_ = out[0];
  err_ = err[0];
}

RunningBulkhead::~RunningBulkhead() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  Finish();
}

bool RunningBulkhead::Fill(int* fd, std::string* into, const std::string& until) {
  while (*fd >= 0 && (until.empty() || into->find(until) == std::string::npos)) {
    pollfd waiting{*fd, POLLIN, 0};
    if (poll(&waiting, 1, kPatienceMs) <= 0) return false;
    char buffer[4096];
    const ssize_t got = read(*fd, buffer, sizeof(buffer));
    if (got <= 0) {
      CloseAndForget(fd);
    } else {
      into->append(buffer, static_cast<size_t>(got));
    }
  }
  return into->find(until) != std::string::npos;
}

bool RunningBulkhead::WaitForOutput(const std::string& text) { return Fill(&out_, &outcome_.out, text); }
bool RunningBulkhead::WaitForError(const std::string& text) { return Fill(&err_, &outcome_.err, text); }
void RunningBulkhead::CloseOutput() { CloseAndForget(&out_); }
void RunningBulkhead::Signal(int signal) { kill(pid_, signal); }

Outcome RunningBulkhead::Finish() {
  // What these tests print fits a pipe's buffer, so reading one after the other cannot deadlock.
  Fill(&out_, &outcome_.out, "");
  Fill(&err_, &outcome_.err, "");
  // What has not ended by now is not waited for: the test sees the signal.
  if (pid_ > 0 && (out_ >= 0 || err_ >= 0)) kill(pid_, SIGKILL);
  int status = 0;
  if (pid_ > 0 && waitpid(pid_, &status, 0) == pid_) {
    if (WIFEXITED(status)) outcome_.exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) outcome_.signal = WTERMSIG(status);
  }
  pid_ = -1;
  CloseAndForget(&out_);
  CloseAndForget(&err_);
  return outcome_;
}

Outcome RunBulkhead(const std::vector<std::string>& arguments, const std::string& input) {
  return RunningBulkhead(arguments, input).Finish();
}

}  // namespace bulkhead
