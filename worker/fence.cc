#include "worker/fence.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/landlock.h>
#include <poll.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/fd.h"
#include "base/sys.h"
#include "ipc/worker_abi.h"

namespace bulkhead::worker {
namespace {

// A worker goes before anything the user works with.
constexpr int kOutOfMemoryScore = 800;
constexpr char kScoreFile[] = "/proc/self/oom_score_adj";

// As of kernel 6.12; Debian 12's header ends at ABI 2. Documentation/userspace-api/landlock.rst gives rights by ABI.
struct LandlockAttributes {
  uint64_t handled_access_fs = 0;
  uint64_t handled_access_net = 0;
  uint64_t scoped = 0;
};
constexpr uint64_t kPathRightsAbi1 = (uint64_t{1} << 13) - 1;
constexpr uint64_t kRefer = uint64_t{1} << 13;           // ABI 2
constexpr uint64_t kTruncate = uint64_t{1} << 14;        // ABI 3
constexpr uint64_t kIoctlDev = uint64_t{1} << 15;        // ABI 5
constexpr uint64_t kTcpBindAndConnect = 3;               // ABI 4
constexpr uint64_t kScopeAbstractSocketsAndSignals = 3;  // ABI 6

void RaiseOutOfMemoryScore() {
  std::array<char, 16> text;
  const ssize_t size = sys::ReadSmallFile(AT_FDCWD, kScoreFile, text);
  int score = 0;
  if (size > 0) std::from_chars(text.data(), text.data() + size, score);
  if (score >= kOutOfMemoryScore) return;
  const UniqueFd file(sys::Open(kScoreFile, O_WRONLY));
  const std::string wanted = std::to_string(kOutOfMemoryScore);
  // Without it the worker only stands further back in the queue.
  if (file.valid()) (void)sys::Write(file.get(), wanted.data(), wanted.size());
}

struct LandlockRules {
  LandlockAttributes attributes;
  size_t size = 0;  // of the structure as this ABI knows it
};

LandlockRules RulesOf(int abi) {
  LandlockRules rules;
  rules.attributes.handled_access_fs = kPathRightsAbi1;
  if (abi >= 2) rules.attributes.handled_access_fs |= kRefer;
  if (abi >= 3) rules.attributes.handled_access_fs |= kTruncate;
  if (abi >= 5) rules.attributes.handled_access_fs |= kIoctlDev;
  if (abi >= 4) rules.attributes.handled_access_net = kTcpBindAndConnect;
  if (abi >= 6) rules.attributes.scoped = kScopeAbstractSocketsAndSignals;
  rules.size = abi >= 6 ? sizeof(LandlockAttributes) : abi >= 4 ? 2 * sizeof(uint64_t) : sizeof(uint64_t);
  return rules;
}

// Everything handled and no rule: nothing is allowed.
absl::Status RestrictPaths(std::vector<std::string>* notes) {
  const int abi = sys::LandlockCreateRuleset(nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (abi == -ENOSYS || abi == -EOPNOTSUPP) {
    notes->push_back("fence: this kernel has no Landlock; paths are closed by the system call filter alone");
    return absl::OkStatus();
  }
  if (abi < 0) return ErrnoError(-abi, "landlock_create_ruleset");
  const LandlockRules rules = RulesOf(abi);
  const int ruleset = sys::LandlockCreateRuleset(&rules.attributes, rules.size, 0);
  if (ruleset < 0) return ErrnoError(-ruleset, fmt::format("landlock_create_ruleset, ABI {}", abi));
  const UniqueFd owner(ruleset);
  if (const int rc = sys::LandlockRestrictSelf(ruleset, 0); rc < 0) return ErrnoError(-rc, "landlock_restrict_self");
  return absl::OkStatus();
}

}  // namespace

bool FenceUnavailable(std::string* why) {
#ifdef BULKHEAD_SANITIZER
  *why = "fence: off, this is a sanitizer build (" BULKHEAD_SANITIZER ")";
  return true;
#else
  (void)why;
  return false;
#endif
}

void NameProcess() {
  // prctl(2): at most 15 characters.
  static constexpr char kName[] = "bulkhead-worker";
  (void)sys::Prctl(PR_SET_NAME, reinterpret_cast<unsigned long>(kName));
}

void DieWithParent(int parent_fd) {
  (void)sys::Prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (parent_fd < 0) return;
  // A parent that died before the line above will never send the signal, but its end of the socket is closed.
  pollfd entry = {parent_fd, 0, 0};
  if (sys::Poll(&entry, 1, 0) > 0 && (entry.revents & (POLLHUP | POLLERR)) != 0) {
    std::_Exit(ipc::kWorkerExitDaemonGone);
  }
}

absl::Status GiveUpPaths(std::vector<std::string>* notes) {
  RaiseOutOfMemoryScore();
  if (const int rc = sys::Prctl(PR_SET_NO_NEW_PRIVS, 1); rc < 0) return ErrnoError(-rc, "PR_SET_NO_NEW_PRIVS");
  return RestrictPaths(notes);
}

absl::Status DenyInspection() {
  if (const int rc = sys::Prctl(PR_SET_DUMPABLE, 0); rc < 0) return ErrnoError(-rc, "PR_SET_DUMPABLE");
  return absl::OkStatus();
}

}  // namespace bulkhead::worker
