#include "worker/inspect.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/sys.h"
#include "bulkhead/v1/worker.pb.h"
#include "engine/runtime/loaded_model.h"
#include "ipc/frame.h"
#include "ipc/worker_abi.h"
#include "worker/die.h"
#include "worker/fault_handlers.h"
#include "worker/fence.h"
#include "worker/hooks.h"
#include "worker/manifest.h"
#include "worker/out_of_memory.h"
#include "worker/syscall_filter.h"
#include "worker/translate.h"

namespace bulkhead::worker {
namespace {

constexpr int kStdout = 1;

void WriteAll(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = sys::Write(kStdout, bytes.data(), bytes.size());
    if (written == -EINTR) continue;
    if (written <= 0) std::_Exit(ipc::kWorkerExitDaemonGone);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

int OpenModel(std::string_view path) {
  if (path.empty()) return ipc::kWorkerModel;
  const int fd = sys::Open(std::string(path).c_str(), O_RDONLY);
  if (fd < 0) Die(ipc::kWorkerExitUsage, fmt::format("{}: {}", path, std::strerror(-fd)));
  return fd;
}

void RaiseFence(int model_fd, Hooks* hooks) {
  std::string why;
  if (FenceUnavailable(&why) || (hooks != nullptr && hooks->fence_off())) return;
  std::vector<std::string> notes;
  absl::Status status = GiveUpPaths(&notes);
  if (status.ok()) status = DenyInspection();
  if (status.ok()) {
    auto filters = SyscallFilters::Build(-1, model_fd);
    status = filters.ok() ? filters->EnterLoad() : filters.status();
  }
  if (!status.ok()) Die(ipc::kWorkerExitFence, Message(status));
}

absl::StatusOr<v1::Manifest> Inspect(int model_fd) {
  ASSIGN_OR_RETURN(const auto model, engine::LoadedModel::LoadCold(model_fd));
  return MakeManifest(*model);
}

int ExitCodeOf(const absl::Status& status) {
  switch (ReasonOf(status)) {
    case Reason::kModelInvalid:
    case Reason::kExceedsCeiling:
      return ipc::kWorkerExitModelInvalid;
    case Reason::kModelUnsupported:
      return ipc::kWorkerExitModelUnsupported;
    default:
      return ipc::kWorkerExitInternal;
  }
}

void WriteFrame(const google::protobuf::MessageLite& message) {
  auto frame = ipc::EncodeFrame(message);
  if (!frame.ok()) Die(ipc::kWorkerExitInternal, Message(frame.status()));
  WriteAll(*frame);
}

}  // namespace

void RunInspect(std::string_view path, InspectFormat format, Hooks* hooks) {
  const int model_fd = OpenModel(path);
  NameProcess();
  // A daemon that started this reads its standard output.
  DieWithParent(path.empty() ? kStdout : -1);
  InstallFaultHandlers();
  PrepareOutOfMemory(-1, nullptr);
  RaiseFence(model_fd, hooks);
  if (hooks != nullptr) hooks->At(HookPoint::kLoadFilterMain);
  const auto manifest = Inspect(model_fd);
  if (!manifest.ok()) {
    Die(ExitCodeOf(manifest.status()),
        fmt::format("{}: {}", NameOf(ReasonOf(manifest.status())), Printable(Message(manifest.status()))));
  }
  if (format == InspectFormat::kFrame) {
    WriteFrame(*manifest);
  } else {
    WriteAll(ManifestJson(*manifest) + "\n");
  }
  std::_Exit(ipc::kWorkerExitOk);
}

}  // namespace bulkhead::worker
