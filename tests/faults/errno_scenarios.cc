#include "tests/faults/errno_scenarios.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "base/mapped_file.h"
#include "base/sys.h"
#include "bulkhead/v1/worker.pb.h"
#include "daemon/config.h"
#include "daemon/generate_request.h"
#include "daemon/inference_table.h"
#include "daemon/listening_socket.h"
#include "daemon/model_scan.h"
#include "daemon/state_lock.h"
#include "ipc/blocking_frame_socket.h"
#include "ipc/frame_channel.h"
#include "ipc/frame_socket.h"
#include "ipc/peer.h"
#include "ipc/unix_address.h"
#include "supervisor/cgroup_tree.h"
#include "supervisor/file_identity.h"
#include "supervisor/machine_cpus.h"
#include "supervisor/memory_probe.h"
#include "supervisor/state_file.h"
#include "supervisor/worker_process.h"
#include "worker/fence.h"
#include "worker/out_of_memory.h"
#include "worker/outbox.h"

namespace bulkhead::faults {
namespace {

using std::chrono::milliseconds;

v1::WorkerFrame SomeFrame() {
  v1::WorkerFrame frame;
  frame.mutable_hello()->set_build("b");
  return frame;
}

struct Sockets {
  UniqueFd left;
  UniqueFd right;
};

absl::StatusOr<Sockets> MakeSockets() {
  int fds[2];
  if (const int error = sys::SocketPair(AF_UNIX, SOCK_STREAM, 0, fds); error < 0) {
    return ErrnoError(-error, "socketpair");
  }
  return Sockets{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

// A libuv loop that is closed whatever happened.
struct UvLoop {
  UvLoop() { uv_loop_init(&loop); }
  ~UvLoop() {
    for (int i = 0; i < 1000 && uv_run(&loop, UV_RUN_NOWAIT) != 0; ++i) ::usleep(100);
    uv_loop_close(&loop);
  }
  uv_loop_t loop = {};
};

// A process of /bin/sleep's from launch to reaping; the launcher's contract is that an error leaves nothing behind.
absl::Status Launch(const std::string& directory) {
  auto launcher = supervisor::PosixLauncher::Create({"/bin/sleep"});
  RETURN_IF_ERROR(launcher.status());
  const UniqueFd model(::open((directory + "/m.gguf").c_str(), O_RDONLY | O_CLOEXEC));
  supervisor::LaunchSpec spec;
  spec.model_fd = model.get();
  spec.arguments = {"20"};
  spec.capture_stdout = true;
  spec.data_soft_bytes = spec.data_hard_bytes = uint64_t{1} << 30;
  auto launched = (*launcher)->Launch(spec);
  RETURN_IF_ERROR(launched.status());
  const pid_t pid = launched->process.pid();
  absl::Status result = absl::OkStatus();
  (void)(*launcher)->Signal(launched->process, SIGKILL);
  // A signal that failed (as injected) is sent again, as the supervisor's retry does.
  (void)(*launcher)->Signal(launched->process, SIGKILL);
  for (int i = 0; i < 5000; ++i) {
    const auto reaped = (*launcher)->Reap(launched->process);
    if (!reaped.ok()) result = reaped.status();
    if (reaped.ok() && reaped->has_value()) return result;
    if (!reaped.ok() && ::kill(pid, 0) != 0) return result;
    ::usleep(200);
  }
  return Error(Reason::kInternal, "sleep was killed and never reaped");
}

// The same through the loop, to the end of its output.
absl::Status Watch(const std::string& directory) {
  auto launcher = supervisor::PosixLauncher::Create({"/bin/echo"});
  RETURN_IF_ERROR(launcher.status());
  const UniqueFd model(::open((directory + "/m.gguf").c_str(), O_RDONLY | O_CLOEXEC));
  UvLoop uv;
  supervisor::Loop loop(&uv.loop, SystemClock());
  bool ended = false;
  supervisor::WorkerProcess process(loop, **launcher, [&ended] { ended = true; });
  supervisor::LaunchSpec spec;
  spec.model_fd = model.get();
  spec.arguments = {"words"};
  spec.control = false;
  spec.capture_stdout = true;
  RETURN_IF_ERROR(process.Launch(spec, 100).status());
  for (int i = 0; i < 20000 && process.running(); ++i) {
    uv_run(&uv.loop, UV_RUN_NOWAIT);
    if (ended && process.output() != nullptr) process.output()->Drain();
    if (ended) (void)process.Reap();
    if (process.running()) ::usleep(100);
  }
  return process.running() ? Error(Reason::kInternal, "echo was never reaped") : absl::OkStatus();
}

absl::Status Channel(const std::string&) {
  ASSIGN_OR_RETURN(Sockets sockets, MakeSockets());
  ipc::FrameChannel sender(std::move(sockets.left), 1 << 20);
  ipc::FrameChannel receiver(std::move(sockets.right), 1 << 20);
  sender.Queue(*ipc::EncodeFrame(SomeFrame()), UniqueFd(::dup(2)));
  sender.Queue(*ipc::EncodeFrame(SomeFrame()));
  std::vector<std::byte> buffer(4096);
  int frames = 0;
  for (int i = 0; i < 10 && frames < 2; ++i) {
    RETURN_IF_ERROR(sender.Flush());
    const auto end = receiver.Read(buffer, 4, [&frames](std::string_view, UniqueFd) { return ++frames < 2; });
    RETURN_IF_ERROR(end.status());
    if (frames == 2) return absl::OkStatus();
  }
  return Error(Reason::kConnectionLost, "two frames were sent, fewer came");
}

absl::Status Blocking(const std::string&) {
  ASSIGN_OR_RETURN(Sockets sockets, MakeSockets());
  ipc::BlockingFrameSocket sender(std::move(sockets.left));
  ipc::BlockingFrameSocket receiver(std::move(sockets.right));
  RETURN_IF_ERROR(sender.Send(SomeFrame(), milliseconds(500)));
  RETURN_IF_ERROR(receiver.Receive(milliseconds(500)).status());
  // Nothing more comes: it has to wait for that, and to say so.
  const auto nothing = receiver.Receive(milliseconds(1));
  if (nothing.ok()) return Error(Reason::kInternal, "a frame that nobody sent");
  return ReasonOf(nothing.status()) == Reason::kDeadlineExceeded ? absl::OkStatus() : nothing.status();
}

class Quiet final : public ipc::FrameSocket::Listener {
 public:
  void OnFrame(std::string_view, UniqueFd) override {}
  void OnClosed(const absl::Status& why) override {
    ended = true;
    status = why;
  }
  bool ended = false;
  absl::Status status;
};

// A connection whose queue is full, so that the socket ends it.
absl::Status FullQueue(const std::string&) {
  ASSIGN_OR_RETURN(Sockets sockets, MakeSockets());
  UvLoop uv;
  ipc::SocketLoop loop(&uv.loop);
  Quiet listener;
  ipc::FrameSocket::Options options;
  options.max_queued_bytes = 64 << 10;
  ASSIGN_OR_RETURN(const auto socket, ipc::FrameSocket::Create(loop, std::move(sockets.left), options, &listener));
  v1::WorkerFrame large;
  large.mutable_hello()->set_build(std::string(60 << 10, 'x'));
  for (int i = 0; i < 100 && socket->Send(large).ok(); ++i) {
  }
  for (int i = 0; i < 200 && !listener.ended; ++i) uv_run(&uv.loop, UV_RUN_NOWAIT);
  return listener.status;
}

absl::Status Unix(const std::string& directory) {
  daemon::Config config;
  config.paths.socket = directory + "/run/s";
  config.access.group = std::string(1, '0');
  const auto listening = daemon::OpenListeningSocket(config);
  RETURN_IF_ERROR(listening.status());
  ASSIGN_OR_RETURN(const UniqueFd client, ipc::ConnectUnix(config.paths.socket));
  const int accepted = sys::Accept(listening->fd.get());
  if (accepted < 0) return ErrnoError(-accepted, "accept");
  const UniqueFd server(accepted);
  return ipc::ReadPeerCredentials(server.get()).status();
}

absl::Status State(const std::string& directory) {
  const std::string state = directory + "/state";
  RETURN_IF_ERROR(daemon::MakeDirectories(state, 0700));
  const auto lock = daemon::StateLock::Acquire(state);
  RETURN_IF_ERROR(lock.status());
  UvLoop uv;
  bool warned = false;
  supervisor::StateFile file(&uv.loop, state, "f", [&warned](const std::string&) { warned = true; });
  RETURN_IF_ERROR(file.SaveNow("bytes\n"));
  const auto read = file.Load();
  if (!read.has_value() && !warned) return Error(Reason::kInternal, "a file that cannot be read, and no warning");
  if (read.has_value() && *read != "bytes\n")
    return Error(Reason::kInternal, "a file that was saved reads differently");
  file.SetAside("the scenario says so");
  return absl::OkStatus();
}

// Whoever comes second is told who holds the lock.
absl::Status SecondLock(const std::string& directory) {
  const std::string state = directory + "/locked";
  RETURN_IF_ERROR(daemon::MakeDirectories(state, 0700));
  const auto first = daemon::StateLock::Acquire(state);
  RETURN_IF_ERROR(first.status());
  const auto second = daemon::StateLock::Acquire(state);
  return second.ok() ? Error(Reason::kInternal, "two hold one lock") : absl::OkStatus();
}

absl::Status Models(const std::string& directory) {
  const daemon::ModelScan scan = daemon::ScanModels({directory});
  const std::string path = directory + "/m.gguf";
  const auto opened = daemon::OpenModelFile(path);
  RETURN_IF_ERROR(opened.status());
  RETURN_IF_ERROR(supervisor::IdentityOf(opened->fd.get()).status());
  RETURN_IF_ERROR(daemon::CheckPassedFile(opened->fd.get()).status());
  RETURN_IF_ERROR(MappedFile::Map(opened->fd.get()).status());
  if (scan.models.empty() && scan.problems.empty()) return Error(Reason::kInternal, "no model, and no problem");
  return absl::OkStatus();
}

absl::Status Configuration(const std::string& directory) {
  (void)daemon::Surroundings::OfThisProcess();
  return daemon::ReadConfigFile(directory + "/c.toml").status();
}

absl::Status Machine(const std::string&) {
  const auto probe = supervisor::MakeProcMemoryProbe();
  (void)probe->Machine();
  (void)probe->OutOfMemoryKills();
  (void)probe->Open(sys::GetPid())->PrivateBytes();
  return supervisor::ReadMachineCpus().cpus.empty() ? Error(Reason::kInternal, "no CPU at all") : absl::OkStatus();
}

absl::Status Seeds(const std::string&) {
  v1::GenerateRequest request;
  request.set_prompt("p");
  return daemon::CheckGenerate(request, 1000, SystemClock(), milliseconds(0)).status();
}

// What a worker gives up. In a child: it cannot be taken back.
absl::Status Fence(const std::string&) {
  worker::DieWithParent(-1);
  ASSIGN_OR_RETURN(Sockets sockets, MakeSockets());
  worker::DieWithParent(sockets.left.get());
  std::vector<std::string> notes;
  RETURN_IF_ERROR(worker::GiveUpPaths(&notes));
  return worker::DenyInspection();
}

absl::Status WorkerOutput(const std::string&) {
  worker::Outbox outbox;
  outbox.Push(SomeFrame());
  outbox.AcknowledgeWake();
  return outbox.Take().size() == 1 ? absl::OkStatus() : Error(Reason::kInternal, "a frame was lost");
}

absl::Status WorkerOutOfMemory(const std::string&) {
  ASSIGN_OR_RETURN(Sockets sockets, MakeSockets());
  worker::ControlWriter writer;
  worker::PrepareOutOfMemory(sockets.left.get(), &writer);
  (void)worker::PrivateBytesInUse();
  (void)worker::MemoryLimit();
  worker::ExitOutOfMemory({8 << 20, 2 << 20, 4 << 20});
}

// Wrappers whose callers cannot run here say at least what the kernel said.
absl::Status Bare(const std::string&) {
  (void)sys::SetPriority(0, 0);
  uint64_t mask[16] = {};
  (void)sys::SchedGetAffinity(0, sizeof(mask), mask);
  (void)sys::SchedSetAffinity(0, sizeof(mask), mask);
  const int memory = sys::MemfdCreate("errno", 0);
  if (memory < 0) return ErrnoError(-memory, "memfd_create");
  return sys::Close(memory) < 0 ? Error(Reason::kInternal, "close") : absl::OkStatus();
}

// A tree in an ordinary directory, which lacks the kernel's files: a leaf is made, refused its process, and removed.
absl::Status Cgroups(const std::string& directory) {
  const std::string top = directory + "/groups";
  std::filesystem::create_directories(top + "/daemon");
  std::ofstream(top + "/daemon/cgroup.procs");
  char mark[8];
  (void)sys::GetXattr(top.c_str(), "user.delegate", mark);
  auto adoption = supervisor::CgroupTree::Adopt(supervisor::MakeKernelCgroupFs(top), sys::GetPid(), top);
  if (adoption.tree == nullptr) return Error(Reason::kInternal, adoption.why);
  ASSIGN_OR_RETURN(const auto leaf, adoption.tree->MakeLeaf("1", {}));
  return leaf->Enter(sys::GetPid()).ok() ? Error(Reason::kInternal, "entered what is no cgroup") : absl::OkStatus();
}

absl::Status Threads(const std::string& directory) {
  ASSIGN_OR_RETURN(const auto launcher, supervisor::PosixLauncher::Create({directory + "/m.gguf", nullptr}));
  const UniqueFd threads(sys::Open("/proc/self/task", O_RDONLY | O_DIRECTORY));
  return launcher->SetCpus(threads, supervisor::ReadMachineCpus().numbers());
}

}  // namespace

std::vector<Scenario> AllScenarios(const std::string& directory) {
  std::ofstream(directory + "/m.gguf") << "GGUF, or so it says";
  std::ofstream(directory + "/c.toml") << "[queue]\ntotal = 100\n";
  std::vector<Scenario> all;
  const auto add = [&](const char* name, absl::Status (*run)(const std::string&)) -> Scenario& {
    all.push_back({name, [run, directory] { return run(directory); }, {}, false});
    return all.back();
  };
  add("launch", Launch);
  add("launch of what cannot be watched", Launch).also = {{"PidfdOpen", EMFILE}};
  add("watch", Watch);
  add("channel", Channel);
  add("blocking socket", Blocking);
  add("full queue", FullQueue);
  add("listening socket", Unix);
  add("state", State);
  add("second lock", SecondLock);
  add("models", Models);
  add("configuration", Configuration);
  add("machine", Machine);
  add("seeds", Seeds);
  add("cgroups", Cgroups);
  add("threads", Threads);
  add("fence", Fence).forked = true;
  add("worker output", WorkerOutput).forked = true;
  add("worker out of memory", WorkerOutOfMemory).forked = true;
  add("bare", Bare);
  return all;
}

}  // namespace bulkhead::faults
