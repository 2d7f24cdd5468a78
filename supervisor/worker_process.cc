#include "supervisor/worker_process.h"

#include <fcntl.h>

#include <csignal>
#include <utility>

#include "base/sys.h"

namespace bulkhead::supervisor {

absl::StatusOr<UniqueFd> WorkerProcess::Launch(const LaunchSpec& spec, size_t stdout_limit) {
  ASSIGN_OR_RETURN(LaunchedProcess launched, launcher_->Launch(spec));
  process_ = std::move(launched.process);
  threads_ = std::move(launched.threads);
  leaf_ = std::move(launched.leaf);
  running_ = true;
  if (launched.stdout_end.valid()) {
    output_.emplace(OutputTail::Keep::kFirst, stdout_limit);
  }
  if (absl::Status watched = Watch(launched); !watched.ok()) {
    // Nobody would see it end: kill it and wait, which takes a moment at most for a process this young.
    Signal(SIGKILL);
    pollfd ended = {process_.fd(), POLLIN, 0};
    sys::Poll(&ended, 1, 1000);
    Reap();
    return Error(Reason::kSpawnFailed, Message(watched));
  }
  return std::move(launched.control);
}

absl::Status WorkerProcess::Watch(LaunchedProcess& launched) {
  const int copy = sys::Fcntl(process_.fd(), F_DUPFD_CLOEXEC);
  if (copy < 0) return ErrnoError(-copy, "pidfd");
  RETURN_IF_ERROR(exit_.Open(loop_->uv(), UniqueFd(copy), ended_));
  RETURN_IF_ERROR(errors_.Open(loop_->uv(), std::move(launched.stderr_end)));
  if (output_.has_value()) RETURN_IF_ERROR(output_->Open(loop_->uv(), std::move(launched.stdout_end)));
  return absl::OkStatus();
}

void WorkerProcess::Signal(int signal) {
  if (!running_) return;
  launcher_->Signal(process_, signal);
  if (signal == SIGKILL && leaf_ != nullptr) leaf_->Kill();
}

std::optional<ProcessExit> WorkerProcess::Reap() {
  if (!running_) return std::nullopt;
  auto reaped = launcher_->Reap(process_);
  if (reaped.ok() && !reaped->has_value()) return std::nullopt;
  running_ = false;
  exit_.Close();
  const pid_t pid = process_.pid();
  process_ = Pidfd(pid, UniqueFd());
  threads_.Reset();
  if (leaf_ != nullptr) last_reading_ = leaf_->Read();
  leaf_.reset();
  // waitid can fail only where somebody else has waited for our child: it is gone, its status is lost.
  return reaped.ok() ? **reaped : ProcessExit{};
}

}  // namespace bulkhead::supervisor
