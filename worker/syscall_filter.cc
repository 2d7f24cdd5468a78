#include "worker/syscall_filter.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <seccomp.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/sys.h"

namespace bulkhead::worker {
namespace {

enum class Stage : uint8_t { kLoad, kRun };

// Collects rules and keeps the first failure, so that a rule reads as one line.
class RuleSet {
 public:
  explicit RuleSet(scmp_filter_ctx context) : context_(context) {}

  void Allow(int call) { Add(SCMP_ACT_ALLOW, call, {}); }
  void Allow(int call, const std::vector<scmp_arg_cmp>& conditions) { Add(SCMP_ACT_ALLOW, call, conditions); }
  // For what a library asks on the side and does without.
  void Fail(int call, int error) { Add(SCMP_ACT_ERRNO(static_cast<uint32_t>(error)), call, {}); }
  void Set(scmp_filter_attr attribute, uint32_t value) { Note(seccomp_attr_set(context_, attribute, value), -1); }

  [[nodiscard]] absl::Status status() const { return status_; }

 private:
  void Add(uint32_t action, int call, const std::vector<scmp_arg_cmp>& conditions) {
    Note(seccomp_rule_add_array(context_, action, call, static_cast<unsigned>(conditions.size()), conditions.data()),
         call);
  }
  void Note(int rc, int call) {
    if (rc < 0 && status_.ok()) status_ = ErrnoError(-rc, fmt::format("system call filter, call {}", call));
  }

  scmp_filter_ctx context_;
  absl::Status status_;
};

// What threads need to wait, allocate, read the time, handle a fault and end. Found with strace over a whole life and
// by reading glibc 2.36: malloc (brk, mmap, mremap, munmap, madvise, mprotect, and sched_getaffinity for its arenas),
// pthread (futex, set_robust_list, rseq, exit), abort (sigaction, sigprocmask, tgkill), vdso fallbacks.
void AllowRuntime(RuleSet* rules) {
  for (const int call : {SCMP_SYS(futex),
                         SCMP_SYS(brk),
                         SCMP_SYS(munmap),
                         SCMP_SYS(mremap),
                         SCMP_SYS(madvise),
                         SCMP_SYS(clock_gettime),
                         SCMP_SYS(gettimeofday),
                         SCMP_SYS(clock_nanosleep),
                         SCMP_SYS(nanosleep),
                         SCMP_SYS(sched_yield),
                         SCMP_SYS(sched_getaffinity),
                         SCMP_SYS(sysinfo),
                         SCMP_SYS(getrandom),
                         SCMP_SYS(getpid),
                         SCMP_SYS(gettid),
                         SCMP_SYS(set_robust_list),
                         SCMP_SYS(rseq),
                         SCMP_SYS(rt_sigprocmask),
                         SCMP_SYS(rt_sigaction),
                         SCMP_SYS(rt_sigreturn),
                         SCMP_SYS(sigaltstack),
                         SCMP_SYS(restart_syscall),
                         SCMP_SYS(exit),
                         SCMP_SYS(exit_group)}) {
    rules->Allow(call);
  }
  const auto own_pid = static_cast<scmp_datum_t>(sys::GetPid());
  rules->Allow(SCMP_SYS(tgkill), {SCMP_A0_64(SCMP_CMP_EQ, own_pid, 0)});
  rules->Allow(SCMP_SYS(mprotect), {SCMP_A2_64(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0)});
  // Reading its own limits, not setting anybody's.
  rules->Allow(SCMP_SYS(prlimit64), {SCMP_A0_64(SCMP_CMP_EQ, 0, 0), SCMP_A2_64(SCMP_CMP_EQ, 0, 0)});
  // Thread names and memory labels: newer libraries try and do without.
  rules->Fail(SCMP_SYS(prctl), EPERM);
}

void AllowTalking(RuleSet* rules, int control_fd) {
  const auto control = static_cast<scmp_datum_t>(control_fd);
  for (const int call : {SCMP_SYS(recvmsg), SCMP_SYS(sendmsg), SCMP_SYS(sendto)}) {
    // sendto without an address is send: a connected socket needs none.
    std::vector<scmp_arg_cmp> conditions = {SCMP_A0_64(SCMP_CMP_EQ, control, 0)};
    if (call == SCMP_SYS(sendto)) conditions.push_back(SCMP_A4_64(SCMP_CMP_EQ, 0, 0));
    rules->Allow(call, conditions);
  }
  // Descriptors the worker has: control socket, wake-up counter, model, stderr, its own memory statistics.
  for (const int call :
       {SCMP_SYS(poll), SCMP_SYS(ppoll), SCMP_SYS(read), SCMP_SYS(pread64), SCMP_SYS(write), SCMP_SYS(close)}) {
    rules->Allow(call);
  }
}

void AllowMapping(RuleSet* rules, Stage stage, int model_fd) {
  const scmp_arg_cmp no_code = SCMP_A2_64(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0);
  rules->Allow(SCMP_SYS(mmap), {no_code, SCMP_A3_64(SCMP_CMP_MASKED_EQ, MAP_ANONYMOUS, MAP_ANONYMOUS)});
  if (stage != Stage::kLoad) return;
  rules->Allow(SCMP_SYS(mmap), {SCMP_A2_64(SCMP_CMP_EQ, PROT_READ, 0),
                                SCMP_A4_64(SCMP_CMP_EQ, static_cast<scmp_datum_t>(model_fd), 0)});
  rules->Allow(SCMP_SYS(fstat));
  // Entering the next stage.
  rules->Allow(SCMP_SYS(seccomp));
}

absl::Status AddRules(scmp_filter_ctx context, Stage stage, int control_fd, int model_fd) {
  RuleSet rules(context);
  rules.Set(SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
  rules.Set(SCMP_FLTATR_CTL_TSYNC, 1);
  rules.Set(SCMP_FLTATR_CTL_NNP, 0);       // was set long before
  rules.Set(SCMP_FLTATR_CTL_SSB, 1);       // no speculation penalty on older kernels: the arithmetic would pay for it
  rules.Set(SCMP_FLTATR_CTL_OPTIMIZE, 2);  // a tree, not a list: futex stands in every step's way
  AllowRuntime(&rules);
  AllowTalking(&rules, control_fd);
  AllowMapping(&rules, stage, model_fd);
  return rules.status();
}

}  // namespace

void SyscallFilters::Free::operator()(void* context) const { seccomp_release(context); }

absl::StatusOr<SyscallFilters> SyscallFilters::Build(int control_fd, int model_fd) {
  Context load(seccomp_init(SCMP_ACT_KILL_PROCESS));
  Context run(seccomp_init(SCMP_ACT_KILL_PROCESS));
  if (load == nullptr || run == nullptr)
    return Error(Reason::kInternal, "system call filter: seccomp is not available");
  RETURN_IF_ERROR(AddRules(load.get(), Stage::kLoad, control_fd, model_fd));
  RETURN_IF_ERROR(AddRules(run.get(), Stage::kRun, control_fd, model_fd));
  return SyscallFilters(std::move(load), std::move(run));
}

absl::Status SyscallFilters::EnterLoad() {
  if (const int rc = seccomp_load(load_.get()); rc < 0) return ErrnoError(-rc, "entering the LOAD filter");
  return absl::OkStatus();
}

absl::Status SyscallFilters::EnterRun() {
  if (const int rc = seccomp_load(run_.get()); rc < 0) return ErrnoError(-rc, "entering the RUN filter");
  return absl::OkStatus();
}

}  // namespace bulkhead::worker
