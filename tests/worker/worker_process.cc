#include "tests/worker/worker_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <utility>

#include "base/sys.h"
#include "ipc/message.h"
#include "tools/make_model/write_model.h"

namespace bulkhead::worker {
namespace {

using std::chrono::seconds;

// In the child: only async-signal-safe calls.
[[noreturn]] void RunChild(const char* program, char* const* arguments, int control, int model, int error_end,
                           uint64_t data_limit) {
  if (data_limit != 0) {
    const rlimit limit = {data_limit, data_limit};
    setrlimit(RLIMIT_DATA, &limit);
  }
  // Out of the way of the numbers they are to get.
  control = fcntl(control, F_DUPFD, 10);
  model = fcntl(model, F_DUPFD, 10);
  error_end = fcntl(error_end, F_DUPFD, 10);
  const int null = open("/dev/null", O_RDWR);
  dup2(null, 0);
  dup2(null, 1);
  dup2(error_end, 2);
  dup2(control, 3);
  dup2(model, 4);
  for (int fd = 5; fd < 64; ++fd) close(fd);
  char* const environment[] = {nullptr};
  execve(program, arguments, environment);
  _exit(127);
}

}  // namespace

std::string BinPath(const std::string& name) {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / name).string();
}

WorkerProcess::WorkerProcess(const Options& options) {
  int sockets[2] = {-1, -1};
  int pipe_ends[2] = {-1, -1};
  if (sys::SocketPair(AF_UNIX, SOCK_STREAM, 0, sockets) < 0 || sys::Pipe(pipe_ends) < 0) return;
  UniqueFd ours(sockets[0]);
  const UniqueFd theirs(sockets[1]);
  stderr_.Reset(pipe_ends[0]);
  const UniqueFd error_end(pipe_ends[1]);
  const std::string program = BinPath(options.program);
  std::vector<char*> arguments = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : options.arguments) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    RunChild(program.c_str(), arguments.data(), theirs.get(), options.model_fd, error_end.get(),
             options.data_limit_bytes);
  }
  pidfd_.Reset(sys::PidfdOpen(pid_));
  control_ = std::make_unique<ipc::BlockingFrameSocket>(std::move(ours));
}

WorkerProcess::~WorkerProcess() {
  if (pid_ <= 0 || exit_.has_value()) return;
  sys::PidfdSendSignal(pidfd_.get(), SIGKILL);
  Wait();
}

bool WorkerProcess::Send(const v1::DaemonFrame& frame) { return control_->Send(frame, seconds(10)).ok(); }

std::optional<v1::WorkerFrame> WorkerProcess::Receive(Duration timeout) {
  auto bytes = control_->Receive(timeout);
  if (!bytes.ok()) return std::nullopt;
  v1::WorkerFrame frame;
  if (!frame.ParseFromString(bytes->bytes)) return std::nullopt;
  return frame;
}

std::optional<v1::WorkerFrame> WorkerProcess::Await(v1::WorkerFrame::KindCase kind, Duration timeout) {
  const Duration deadline = SystemClock().Monotonic() + timeout;
  while (SystemClock().Monotonic() < deadline) {
    auto frame = Receive(deadline - SystemClock().Monotonic());
    if (!frame.has_value()) return std::nullopt;
    if (frame->kind_case() == kind) return frame;
    seen.push_back(*std::move(frame));
  }
  return std::nullopt;
}

bool WorkerProcess::Configure(const std::string& hook) {
  if (!Await(v1::WorkerFrame::kHello).has_value()) return false;
  v1::DaemonFrame frame;
  frame.mutable_configure()->set_allocation_id("test#1.1");
  frame.mutable_configure()->set_context(512);
  frame.mutable_configure()->set_sequences(4);
  frame.mutable_configure()->set_threads(2);
  frame.mutable_configure()->set_test_hook(hook);
  return Send(frame);
}

bool WorkerProcess::ConfigureAndAwaitReady(const std::string& hook) {
  return Configure(hook) && Await(v1::WorkerFrame::kReady).has_value();
}

std::optional<Exit> WorkerProcess::Wait(Duration timeout) {
  if (exit_.has_value()) return exit_;
  pollfd entry = {pidfd_.get(), POLLIN, 0};
  const auto wait_ms = std::chrono::ceil<std::chrono::milliseconds>(timeout).count();
  if (sys::Poll(&entry, 1, static_cast<int>(wait_ms)) <= 0) return std::nullopt;
  siginfo_t info = {};
  if (sys::WaitPidfd(pidfd_.get(), &info, WEXITED) < 0) return std::nullopt;
  exit_ = info.si_code == CLD_EXITED ? Exit{info.si_status, 0} : Exit{-1, info.si_status};
  return exit_;
}

std::string WorkerProcess::Stderr() {
  std::string text;
  std::array<char, 4096> buffer;
  ssize_t got = 0;
  while ((got = sys::Read(stderr_.get(), buffer.data(), buffer.size())) > 0) {
    text.append(buffer.data(), static_cast<size_t>(got));
  }
  return text;
}

int SmallModel() {
  static const int fd = [] {
    char name[] = "/tmp/bulkhead-worker-model-XXXXXX";
    const int made = mkstemp(name);
    if (made >= 0) close(made);
    tools::ModelSpec spec;
    spec.architecture = "qwen3";
    const auto size = tools::WriteModelFile(spec, name);
    const int opened = size.ok() ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    unlink(name);
    return opened;
  }();
  return fd;
}

v1::DaemonFrame GenerateFrame(uint64_t handle, const std::vector<int32_t>& ids, uint32_t max_tokens) {
  v1::DaemonFrame frame;
  v1::WorkerGenerate& generate = *frame.mutable_generate();
  generate.set_handle(handle);
  generate.mutable_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
  generate.set_max_tokens(max_tokens);
  generate.mutable_sampling()->set_seed(7);
  generate.mutable_sampling()->set_temperature(0);
  generate.mutable_sampling()->set_ignore_eos(true);
  return frame;
}

}  // namespace bulkhead::worker
