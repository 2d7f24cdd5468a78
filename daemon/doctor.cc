#include "daemon/doctor.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/build_id.h"
#include "base/fd.h"
#include "base/status.h"
#include "base/sys.h"
#include "daemon/units.h"
#include "supervisor/memory_probe.h"
#include "supervisor/own_cgroup.h"

namespace bulkhead::daemon {
namespace {

constexpr char kFallback[] =
    "fallback: workers are killed by process group, their private memory is held by RLIMIT_DATA, and out-of-memory "
    "kills "
    "are told by /proc/vmstat";

class Findings {
 public:
  void Ok(std::string_view what, const std::string& detail) { Add(what, "ok", detail); }
  void Warn(std::string_view what, const std::string& detail) { Add(what, "warn", detail); }
  void Bad(std::string_view what, const std::string& detail) { Add(what, "fail", detail); }
  v1::DoctorReply Take() { return std::move(reply_); }

 private:
  void Add(std::string_view what, const char* status, const std::string& detail) {
    v1::DoctorFinding* finding = reply_.add_findings();
    finding->set_what(std::string(what));
    finding->set_status(status);
    finding->set_detail(detail);
  }

  v1::DoctorReply reply_;
};

std::string ReadText(const char* path) {
  std::array<char, 16 << 10> buffer;
  const ssize_t size = sys::ReadSmallFile(AT_FDCWD, path, buffer);
  std::string text(buffer.data(), size < 0 ? 0 : static_cast<size_t>(size));
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

void Kernel(Findings& out) {
  const std::string release = ReadText("/proc/sys/kernel/osrelease");
  int major = 0;
  int minor = 0;
  const char* end = release.data() + release.size();
  const auto first = std::from_chars(release.data(), end, major);
  if (first.ec == std::errc() && first.ptr != end) std::from_chars(first.ptr + 1, end, minor);
  const bool enough = major > 5 || (major == 5 && minor >= 14);
  enough ? out.Ok("kernel", release) : out.Warn("kernel", release + "; 5.14 or later is what this is tested on");
}

void Cpu(Findings& out) {
  const std::string info = ReadText("/proc/cpuinfo");
  const size_t line = info.find("\nflags");
  const std::string flags = line == std::string::npos ? "" : info.substr(line, info.find('\n', line + 1) - line) + " ";
  std::string found;
  for (const char* feature : {"avx2", "fma", "f16c", "avx512f", "avx512_vnni", "avx512bw"}) {
    if (flags.find(fmt::format(" {} ", feature)) != std::string::npos) found += fmt::format("{} ", feature);
  }
  if (found.find("avx2") != std::string::npos) return out.Ok("cpu", found);
  out.Warn("cpu", "no AVX2: computing will be slow");
}

void HugePages(Findings& out) {
  const std::string enabled = ReadText("/sys/kernel/mm/transparent_hugepage/enabled");
  if (enabled.find("[never]") != std::string::npos || enabled.empty()) {
    return out.Warn("huge pages", "transparent huge pages are off: decoding will be slower");
  }
  out.Ok("huge pages", enabled);
}

void Cgroup(Findings& out, const supervisor::MachineMemory& memory, const DoctorInputs& inputs) {
  const std::string limit = memory.cgroup_limit ? "memory limit " + Mebibytes(*memory.cgroup_limit) : "no memory limit";
  const auto place = supervisor::OwnCgroup("");
  out.Ok("cgroup", fmt::format("{}, {}", place ? "version 2 at " + place->directory() : "version 1 only", limit));
  if (inputs.delegated) return out.Ok("cgroup delegation", inputs.cgroup);
  out.Warn("cgroup delegation", fmt::format("{}; {}", inputs.cgroup, kFallback));
}

void Resources(Findings& out, const supervisor::ResourceReport& report) {
  out.Ok("cpus", report.machine);
  for (const auto& worker : report.workers) {
    out.Ok("cpu grant", fmt::format("{}: {}", worker.allocation_id, worker.grant));
    for (const std::string& note : worker.notes) out.Ok("worker", fmt::format("{}: {}", worker.allocation_id, note));
  }
}

void Sandbox(Findings& out) {
  const int abi = sys::LandlockCreateRuleset(nullptr, 0, 1);
  abi > 0 ? out.Ok("landlock", fmt::format("ABI {}", abi))
          : out.Bad("landlock", "not offered by this kernel: workers cannot be fenced from files");
  const bool seccomp = ReadText("/proc/sys/kernel/seccomp/actions_avail").find("kill_process") != std::string::npos;
  seccomp ? out.Ok("seccomp", "filters with kill_process") : out.Bad("seccomp", "not offered by this kernel");
}

void Memory(Findings& out, const supervisor::MachineMemory& memory) {
  if (!memory.available) return out.Bad("memory", "the kernel does not say how much is available");
  out.Ok("memory", fmt::format("{} available of {}", Mebibytes(*memory.available), Mebibytes(memory.total)));
}

std::optional<std::string> CannotOpen(const std::string& path, int flags) {
  const UniqueFd fd(sys::Open(path.c_str(), flags));
  if (fd.valid()) return std::nullopt;
  return Message(ErrnoError(-fd.get(), path));
}

void Files(Findings& out, const DoctorInputs& inputs) {
  for (const std::string& directory : inputs.model_directories) {
    const auto problem = CannotOpen(directory, O_RDONLY | O_DIRECTORY);
    problem ? out.Warn("models", *problem) : out.Ok("models", directory);
  }
  const auto worker = CannotOpen(inputs.worker, O_RDONLY);
  worker ? out.Bad("worker", *worker) : out.Ok("worker", inputs.worker);
  const std::string lock = inputs.state_directory + "/lock";
  const std::string owner = ReadText(lock.c_str());
  owner == fmt::format("{}", sys::GetPid()) ? out.Ok("lock", fmt::format("{} names pid {}", lock, owner))
                                            : out.Bad("lock", fmt::format("{} names pid '{}', not ours", lock, owner));
}

void Descriptors(Findings& out) {
  rlimit limit = {};
  if (sys::Prlimit(0, RLIMIT_NOFILE, nullptr, &limit) < 0) return;
  const std::string detail = fmt::format("{} descriptors", limit.rlim_cur);
  limit.rlim_cur >= 16'384 ? out.Ok("descriptors", detail) : out.Warn("descriptors", detail + ": few for many clients");
}

// Workers say that they live every 10 s at least.
constexpr int64_t kSilentMs = 25'000;

void Engines(Findings& out, const std::vector<supervisor::ResidentModel>& models) {
  for (const supervisor::ResidentModel& model : models) {
    if (model.heartbeat_ms < 0) continue;
    const v1::EngineSnapshot& engine = model.engine;
    const std::string what = "engine " + model.allocation_id;
    const std::string detail = fmt::format(
        "{} of {} KV pages in use, {} kept for later prompts; {} of {} sequences, {} waiting{}; moved {} ms ago",
        engine.kv_pages_total() - engine.kv_pages_free() - engine.kv_pages_idle(), engine.kv_pages_total(),
        engine.kv_pages_idle(), engine.active_prefill() + engine.active_decode(), engine.max_sequences(),
        engine.waiting(), engine.capacity_blocked() ? " for capacity" : "", engine.heartbeat_age_ns() / 1'000'000);
    if (!engine.healthy()) {
      out.Warn(what, "stuck: " + detail);
    } else if (model.heartbeat_ms > kSilentMs) {
      out.Warn(what, fmt::format("silent for {} ms: {}", model.heartbeat_ms, detail));
    } else {
      out.Ok(what, detail);
    }
  }
}

}  // namespace

v1::DoctorReply Examine(const DoctorInputs& inputs) {
  Findings out;
  out.Ok("build", std::string(BuildId()));
  out.Ok("daemon", fmt::format("pid {} uid {} socket {}{}{}", sys::GetPid(), sys::GetEuid(), inputs.socket,
                               inputs.activated ? ", opened by systemd" : "", inputs.watched ? ", watched" : ""));
  inputs.degraded.empty() ? out.Ok("supervision", "all as designed") : out.Warn("supervision", inputs.degraded);
  Kernel(out);
  Cpu(out);
  HugePages(out);
  const supervisor::MachineMemory memory = supervisor::MakeProcMemoryProbe()->Machine();
  Memory(out, memory);
  Cgroup(out, memory, inputs);
  Resources(out, inputs.resources);
  Sandbox(out);
  Descriptors(out);
  Files(out, inputs);
  Engines(out, inputs.models);
  return out.Take();
}

}  // namespace bulkhead::daemon
