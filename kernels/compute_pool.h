// The threads that compute, one pool per process. The thread that calls Run works too, so a pool of n threads starts
// n - 1, at construction (before a worker's seccomp filter closes thread creation), with 512 KiB stacks. Idle threads
// spin for some microseconds, then sleep: a pool with nothing to do uses no CPU, and on a shared core nobody burns a
// time slice waiting.
//
// Work is cut into chunks that threads take one by one: rows, tokens, heads or segments, never parts of one sum, so
// results do not depend on the number of threads. Owner: the engine. One Run at a time, by any one thread.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace bulkhead::kernels {

class ComputePool {
 public:
  struct Options {
    uint32_t threads = 1;      // the caller included; at least 1
    size_t scratch_bytes = 0;  // of each thread; mapped and touched at construction
  };

  // One thread's view of itself within a Run.
  struct Worker {
    uint32_t index;                // 0 is the thread that called Run
    std::span<std::byte> scratch;  // 64-byte aligned, contents undefined
  };

  // Fails with kInternal where a thread or the scratch cannot be had.
  static absl::StatusOr<std::unique_ptr<ComputePool>> Create(const Options& options);

  ComputePool(const ComputePool&) = delete;
  ComputePool& operator=(const ComputePool&) = delete;
  ~ComputePool();  // joins; no Run may be under way

  // Gives every thread at least this much scratch. A worker starts its threads before it knows the model that says how
  // much. Between Runs only; kWorkerOom where it cannot be mapped.
  [[nodiscard]] absl::Status ReserveScratch(size_t bytes_each);

  [[nodiscard]] uint32_t threads() const { return threads_; }
  [[nodiscard]] uint32_t active_threads() const { return active_; }

  // How many of the threads take part from the next Run on; clamped to 1..threads(). Between Runs only.
  void SetActiveThreads(uint32_t count);

  // Calls work(chunk, worker) once for every chunk in [0, chunks), each on one of the active threads, and returns when
  // all are done. `work` must not throw and must not call Run.
  template <typename Work>
  void Run(uint32_t chunks, const Work& work) {
    RunErased(
        chunks,
        [](const void* context, uint32_t chunk, const Worker& worker) {
          (*static_cast<const Work*>(context))(chunk, worker);
        },
        &work);
  }

 private:
  using WorkFunction = void (*)(const void* context, uint32_t chunk, const Worker& worker);
  struct Shared;

  ComputePool(std::unique_ptr<Shared> shared, uint32_t threads);
  void RunErased(uint32_t chunks, WorkFunction work, const void* context);

  std::unique_ptr<Shared> shared_;
  uint32_t threads_;
  uint32_t active_;
};

}  // namespace bulkhead::kernels
