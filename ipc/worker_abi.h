// What bulkheadd and bulkhead-worker agree on beside the messages of worker.proto: descriptor numbers, arguments, exit
// codes, and the line a worker leaves on stderr when it runs out of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace bulkhead::ipc {

// Descriptors a worker starts with, all others closed. stdin and stdout are /dev/null (--inspect writes to stdout).
inline constexpr int kWorkerStderr = 2;
inline constexpr int kWorkerControl = 3;  // SOCK_STREAM socketpair
inline constexpr int kWorkerModel = 4;    // the model file, read-only

// Arguments of --inspect: the manifest of descriptor 4, or of PATH, as one JSON object or as one frame, on stdout.
inline constexpr char kInspectArgument[] = "--inspect";
inline constexpr char kInspectFrameArgument[] = "--inspect=frame";

// Exit codes of bulkhead-worker.
enum WorkerExit : int {
  kWorkerExitOk = 0,  // shut down as told, or after LoadFailed
  kWorkerExitUsage = 2,
  kWorkerExitModelInvalid = 65,      // --inspect: the file is malformed; the reason is on stderr
  kWorkerExitModelUnsupported = 66,  // --inspect: well-formed, but nothing this build runs
  kWorkerExitInternal = 70,
  kWorkerExitOutOfMemory = 71,  // allocation refused by the memory fence; see OutOfMemoryReport
  kWorkerExitProtocol = 72,     // the daemon sent what it never sends
  kWorkerExitDaemonGone = 73,   // the control socket was closed by the other end
  kWorkerExitFence = 74,        // the fence could not be raised; nothing was read
};

// Bytes that were asked for, in use (private, as RLIMIT_DATA counts), and allowed. 0 = not known.
struct OutOfMemoryReport {
  uint64_t wanted_bytes = 0;
  uint64_t in_use_bytes = 0;
  uint64_t limit_bytes = 0;
};

// Writes "bulkhead-worker: out of memory: wanted=... in_use=... limit=...\n" into `buffer` (128 bytes suffice) and
// returns what was written. Allocates nothing and is async-signal-safe.
std::string_view FormatOutOfMemory(const OutOfMemoryReport& report, std::span<char> buffer);

// The last such line in the tail of a worker's stderr. The text is not trusted: numbers are capped by the caller's use.
std::optional<OutOfMemoryReport> ParseOutOfMemory(std::string_view stderr_tail);

}  // namespace bulkhead::ipc
