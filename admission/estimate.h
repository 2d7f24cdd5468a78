// What a worker will cost, computed from its manifest before it exists. All sizes are u64 bytes and all arithmetic is
// checked: a figure that does not fit is an answer (nullopt), never a wrap. Pure functions.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

namespace bulkhead::admission {

// Two workers that map the same file share its pages, whatever name it was opened by; a file written anew is another.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t size = 0;
  int64_t mtime_ns = 0;
  auto operator<=>(const FileIdentity&) const = default;
};

// The part of a manifest that admission needs. `model` is the routing key: requests with equal keys share a worker. It
// is the catalogue's name, or a key unique to (uid, file) for a passed descriptor.
struct ModelFacts {
  std::string model{};
  FileIdentity file{};
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes_per_token = 0;  // all layers, K and V, in the KV type the worker will use
  uint64_t recurrent_bytes_per_sequence = 0;
  uint64_t arena_bytes = 0;
  uint64_t overhead_bytes = 0;
  uint32_t trained_context = 0;  // 0 = the file does not say
  // Pool of a worker whose request names no other; 0 = kDefaultContext, kDefaultSequences.
  uint32_t usual_context = 0;
  uint32_t usual_sequences = 0;
};

// Size of a worker's KV pool: `sequences` of `context` tokens each.
struct Shape {
  uint32_t context = 0;
  uint32_t sequences = 0;
  auto operator<=>(const Shape&) const = default;
};

struct Charge {
  uint64_t weights = 0;  // shared by every worker of the file
  uint64_t kv = 0;
  uint64_t recurrent = 0;
  uint64_t arena = 0;
  uint64_t overhead = 0;
  uint64_t correction = 0;  // what a worse run or an out-of-memory report taught on top of the manifest
  // No overflow: EstimateCharge has checked both sums.
  [[nodiscard]] uint64_t Private() const { return kv + recurrent + arena + overhead + correction; }
  [[nodiscard]] uint64_t Total() const { return weights + Private(); }
};

inline constexpr uint32_t kDefaultContext = 8192;
inline constexpr uint32_t kDefaultSequences = 4;
// KV pages hold this many positions; a context is charged in whole pages.
inline constexpr uint32_t kPositionsPerPage = 256;

// min(trained, usual); the usual one where the file does not say.
[[nodiscard]] uint32_t DefaultContext(const ModelFacts& facts);
[[nodiscard]] uint32_t DefaultSequences(const ModelFacts& facts);

// weights + KV + recurrent state + arena + overhead; `learned_private` (0 = nothing learned) raises the private part
// where it was worse. nullopt where the total exceeds u64.
[[nodiscard]] std::optional<Charge> EstimateCharge(const ModelFacts& facts, Shape shape, uint64_t learned_private = 0);

// The largest context, in tokens, whose one-sequence worker costs at most `bytes` in all (weights included), capped by
// the trained context; 0 where not even one page fits.
[[nodiscard]] uint32_t LargestContext(const ModelFacts& facts, uint64_t bytes);

// A worker that ran out of memory is tried again with what it wanted plus an eighth, at most this many times.
inline constexpr uint32_t kMaxOomRetries = 2;
// Saturates at the top of u64.
[[nodiscard]] uint64_t AfterOom(uint64_t wanted_private_bytes);

}  // namespace bulkhead::admission
