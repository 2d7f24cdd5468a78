#include "supervisor/state_file.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <utility>

#include "base/fd.h"
#include "base/sys.h"

namespace bulkhead::supervisor {
namespace {

// More than any file kept here; a longer one is not ours.
constexpr size_t kMaxBytes = 8 << 20;

absl::Status WriteAll(int fd, const std::string& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t wrote = sys::Write(fd, bytes.data() + done, bytes.size() - done);
    if (wrote == -EINTR) continue;
    if (wrote <= 0) return ErrnoError(wrote == 0 ? EIO : static_cast<int>(-wrote), "write");
    done += static_cast<size_t>(wrote);
  }
  return absl::OkStatus();
}

absl::Status Replace(const std::string& directory, const std::string& name, const std::string& bytes) {
  const std::string path = directory + "/" + name;
  const std::string temporary = path + ".tmp";
  UniqueFd file(sys::Open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600));
  if (!file.valid()) return Error(Reason::kInternal, fmt::format("{}: cannot be created", temporary));
  absl::Status written = WriteAll(file.get(), bytes);
  if (written.ok()) {
    if (const int error = sys::Fsync(file.get()); error < 0) written = ErrnoError(-error, "fsync");
  }
  if (written.ok()) {
    if (const int error = sys::Rename(temporary.c_str(), path.c_str()); error < 0)
      written = ErrnoError(-error, "rename");
  }
  if (!written.ok()) {
    sys::Unlink(temporary.c_str());
    return Error(Reason::kInternal, fmt::format("{}: {}", path, Message(written)));
  }
  // The new name is durable once its directory is.
  UniqueFd parent(sys::Open(directory.c_str(), O_RDONLY | O_DIRECTORY));
  if (parent.valid()) sys::Fsync(parent.get());
  return absl::OkStatus();
}

}  // namespace

struct StateFile::Shared {
  uv_loop_t* loop = nullptr;
  std::string directory;
  std::string name;
  Warn warn;  // null once the owner is gone
  std::optional<std::string> next;
  bool busy = false;
  bool warned = false;
};

namespace {

struct Job {
  uv_work_t work = {};
  std::string directory;
  std::string name;
  std::string bytes;
  absl::Status result;
  std::function<void(const absl::Status&)> done;
};

void Queue(uv_loop_t* loop, std::unique_ptr<Job> job) {
  Job* raw = job.release();
  raw->work.data = raw;
  uv_queue_work(
      loop, &raw->work,
      [](uv_work_t* work) {
        auto* running = static_cast<Job*>(work->data);
        running->result = Replace(running->directory, running->name, running->bytes);
      },
      [](uv_work_t* work, int) {
        const std::unique_ptr<Job> ended(static_cast<Job*>(work->data));
        ended->done(ended->result);
      });
}

}  // namespace

StateFile::StateFile(uv_loop_t* loop, std::string directory, std::string name, Warn warn)
    : shared_(std::make_shared<Shared>()) {
  shared_->loop = loop;
  shared_->directory = std::move(directory);
  shared_->name = std::move(name);
  shared_->warn = std::move(warn);
}

StateFile::~StateFile() { shared_->warn = nullptr; }

std::optional<std::string> StateFile::Load() const {
  if (shared_->directory.empty()) return std::nullopt;
  const std::string path = shared_->directory + "/" + shared_->name;
  // Not written to beforehand: of so many pages a start touches one.
  const auto bytes = std::make_unique_for_overwrite<char[]>(kMaxBytes);
  const ssize_t got = sys::ReadSmallFile(AT_FDCWD, path.c_str(), {bytes.get(), kMaxBytes});
  if (got == -ENOENT) return std::nullopt;
  if (got < 0) {
    if (shared_->warn) shared_->warn(Message(ErrnoError(static_cast<int>(-got), path)));
    return std::nullopt;
  }
  return std::string(bytes.get(), static_cast<size_t>(got));
}

bool StateFile::WasKept() const {
  const std::string path = shared_->directory + "/" + shared_->name;
  struct stat info = {};
  return sys::Lstat(path.c_str(), &info) != -ENOENT || sys::Lstat((path + ".corrupt").c_str(), &info) != -ENOENT;
}

void StateFile::SetAside(const std::string& why) const {
  const std::string path = shared_->directory + "/" + shared_->name;
  const int error = sys::Rename(path.c_str(), (path + ".corrupt").c_str());
  if (!shared_->warn) return;
  shared_->warn(error == 0 ? fmt::format("{}: {}; set aside as {}.corrupt", path, why, shared_->name)
                           : fmt::format("{}: {}; to be overwritten, since it cannot be set aside: {}", path, why,
                                         Message(ErrnoError(-error, "rename"))));
}

void StateFile::Save(std::string bytes) {
  if (shared_->directory.empty()) return;
  shared_->next = std::move(bytes);
  if (!shared_->busy) Start(shared_);
}

absl::Status StateFile::SaveNow(const std::string& bytes) const {
  if (shared_->directory.empty()) return absl::OkStatus();
  return Replace(shared_->directory, shared_->name, bytes);
}

void StateFile::Start(const std::shared_ptr<Shared>& shared) {
  auto job = std::make_unique<Job>();
  job->directory = shared->directory;
  job->name = shared->name;
  job->bytes = *std::exchange(shared->next, std::nullopt);
  job->done = [shared](const absl::Status& result) {
    shared->busy = false;
    // Said once per streak of failures, not per death.
    if (!result.ok() && !shared->warned && shared->warn) shared->warn(Message(result));
    shared->warned = !result.ok();
    if (shared->next.has_value()) Start(shared);
  };
  shared->busy = true;
  Queue(shared->loop, std::move(job));
}

}  // namespace bulkhead::supervisor
