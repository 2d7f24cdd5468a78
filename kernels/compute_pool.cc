#include "kernels/compute_pool.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/sys.h"

namespace bulkhead::kernels {
namespace {

constexpr size_t kStackBytes = 512 * 1024;
constexpr size_t kScratchAlignment = 4096;

// About 20 us: longer than the gap between two operations of a forward pass, far shorter than a time slice.
constexpr int kSpins = 1000;

void SpinPause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

constexpr uint64_t MakeJob(uint32_t threads, uint32_t chunks) { return uint64_t{threads} << 32 | chunks; }
constexpr uint32_t ThreadsOf(uint64_t job) { return static_cast<uint32_t>(job >> 32); }
constexpr uint32_t ChunksOf(uint64_t job) { return static_cast<uint32_t>(job); }

bool HasWork(uint64_t job, const ComputePool::Worker& worker) {
  return ChunksOf(job) > 0 && worker.index < ThreadsOf(job);
}

}  // namespace

struct ComputePool::Shared {
  struct Helper {
    pthread_t thread{};
    Shared* shared = nullptr;
    Worker worker{};
    alignas(64) std::atomic<uint32_t> asleep{0};
  };

  // The latest job: its thread count above, its chunks that nobody has taken yet below, in one word so that a thread
  // never takes a chunk of a job it has no part in. Taking one keeps the job's fields alive until the chunk is counted
  // as done, so they may be read plainly; a thread that comes late finds no chunk and reads nothing.
  alignas(64) std::atomic<uint64_t> untaken{0};
  alignas(64) std::atomic<uint32_t> unfinished{0};
  std::atomic<uint32_t> caller_waits{0};
  std::atomic<bool> stop{false};

  WorkFunction work = nullptr;
  const void* context = nullptr;
  uint32_t chunks = 0;

  Worker caller{};
  std::vector<std::unique_ptr<Helper>> helpers;
  void* scratch = nullptr;
  size_t scratch_size = 0;

  ~Shared();
  int MapScratch(size_t bytes_each, uint32_t threads);
  int StartHelper(uint32_t index);
  void TakeChunks(const Worker& worker);
  void AwaitWork(Helper& helper);
  void AwaitCompletion();
  static void* HelperMain(void* argument);
};

ComputePool::Shared::~Shared() {
  stop.store(true);
  for (auto& helper : helpers) {
    helper->asleep.store(0);
    helper->asleep.notify_one();
  }
  for (auto& helper : helpers) pthread_join(helper->thread, nullptr);
  if (scratch != nullptr) sys::Munmap(scratch, scratch_size);
}

int ComputePool::Shared::MapScratch(size_t bytes_each, uint32_t threads) {
  const size_t each = (bytes_each + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
  if (each == 0) return 0;
  const size_t size = each * threads;
  void* data = nullptr;
  if (int error = sys::Mmap(&data, nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      error < 0) {
    return error;
  }
  scratch = data;
  scratch_size = size;
  sys::Madvise(data, size, MADV_HUGEPAGE);  // a wish: without it the kernels are slower, not wrong
  auto* bytes = static_cast<std::byte*>(data);
  for (size_t offset = 0; offset < size; offset += kScratchAlignment) bytes[offset] = std::byte{1};
  caller.scratch = {bytes, bytes_each};
  for (uint32_t i = 1; i < threads; ++i) helpers[i - 1]->worker.scratch = {bytes + i * each, bytes_each};
  return 0;
}

int ComputePool::Shared::StartHelper(uint32_t index) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  // Signals are the business of the main thread; a helper starts with all of them blocked, but for its own faults,
  // which would otherwise kill the process without a word.
  sigset_t all, old;
  sigfillset(&all);
  for (const int fault : {SIGBUS, SIGILL, SIGSEGV, SIGFPE}) sigdelset(&all, fault);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  Helper& helper = *helpers[index - 1];
  const int error = pthread_create(&helper.thread, &attributes, &HelperMain, &helper);
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  pthread_attr_destroy(&attributes);
  if (error == 0) pthread_setname_np(helper.thread, fmt::format("compute-{}", index).c_str());
  return error;
}

void ComputePool::Shared::TakeChunks(const Worker& worker) {
  uint64_t job = untaken.load(std::memory_order_acquire);
  while (HasWork(job, worker)) {
    if (!untaken.compare_exchange_weak(job, job - 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    work(context, chunks - ChunksOf(job), worker);
    if (unfinished.fetch_sub(1) == 1 && caller_waits.exchange(0) == 1) {
      caller_waits.notify_one();
    }
    job = untaken.load(std::memory_order_acquire);
  }
}

// Returns when there may be work for this helper, or at the end of the pool.
void ComputePool::Shared::AwaitWork(Helper& helper) {
  for (int i = 0; i < kSpins; ++i) {
    const uint64_t job = untaken.load(std::memory_order_acquire);
    if (HasWork(job, helper.worker) || stop.load(std::memory_order_relaxed)) return;
    if (helper.worker.index >= ThreadsOf(job)) break;
    SpinPause();
  }
  // Sequentially consistent against RunErased, which publishes the work before it looks at `asleep`.
  helper.asleep.store(1);
  if (HasWork(untaken.load(), helper.worker) || stop.load()) {
    helper.asleep.store(0);
    return;
  }
  helper.asleep.wait(1);
}

void* ComputePool::Shared::HelperMain(void* argument) {
  auto& helper = *static_cast<Helper*>(argument);
  Shared& shared = *helper.shared;
  while (!shared.stop.load()) {
    shared.TakeChunks(helper.worker);
    shared.AwaitWork(helper);
  }
  return nullptr;
}

void ComputePool::Shared::AwaitCompletion() {
  for (int i = 0; i < kSpins; ++i) {
    if (unfinished.load(std::memory_order_acquire) == 0) return;
    SpinPause();
  }
  while (unfinished.load(std::memory_order_acquire) != 0) {
    caller_waits.store(1);
    if (unfinished.load() != 0) caller_waits.wait(1);
    caller_waits.store(0);
  }
}

absl::StatusOr<std::unique_ptr<ComputePool>> ComputePool::Create(const Options& options) {
  const uint32_t threads = std::max(options.threads, 1u);
  auto shared = std::make_unique<Shared>();
  std::vector<std::unique_ptr<Shared::Helper>> helpers(threads - 1);
  for (uint32_t i = 1; i < threads; ++i) {
    helpers[i - 1] = std::make_unique<Shared::Helper>();
    helpers[i - 1]->shared = shared.get();
    helpers[i - 1]->worker.index = i;
  }
  shared->helpers = std::move(helpers);
  if (int error = shared->MapScratch(options.scratch_bytes, threads); error < 0) {
    shared->helpers.clear();
    return ErrnoError(-error, fmt::format("compute scratch of {} x {} bytes", threads, options.scratch_bytes));
  }
  for (uint32_t i = 1; i < threads; ++i) {
    if (int error = shared->StartHelper(i); error != 0) {
      shared->helpers.resize(i - 1);
      return ErrnoError(error, fmt::format("compute thread {} of {}", i, threads));
    }
  }
  return std::unique_ptr<ComputePool>(new ComputePool(std::move(shared), threads));
}

ComputePool::ComputePool(std::unique_ptr<Shared> shared, uint32_t threads)
    : shared_(std::move(shared)), threads_(threads), active_(threads) {}

ComputePool::~ComputePool() = default;

absl::Status ComputePool::ReserveScratch(size_t bytes_each) {
  if (shared_->caller.scratch.size() >= bytes_each) return absl::OkStatus();
  void* const old = std::exchange(shared_->scratch, nullptr);
  const size_t old_size = std::exchange(shared_->scratch_size, 0);
  if (old != nullptr) sys::Munmap(old, old_size);
  // The next Run publishes the new spans to the helpers.
  if (shared_->MapScratch(bytes_each, threads_) == 0) return absl::OkStatus();
  shared_->caller.scratch = {};
  for (auto& helper : shared_->helpers) helper->worker.scratch = {};
  return Error(Reason::kWorkerOom, fmt::format("compute scratch: cannot map {} x {} bytes", threads_, bytes_each));
}

void ComputePool::SetActiveThreads(uint32_t count) { active_ = std::clamp(count, 1u, threads_); }

void ComputePool::RunErased(uint32_t chunks, WorkFunction work, const void* context) {
  if (chunks == 0) return;
  Shared& shared = *shared_;
  if (active_ == 1 || chunks == 1) {
    for (uint32_t i = 0; i < chunks; ++i) work(context, i, shared.caller);
    return;
  }
  shared.work = work;
  shared.context = context;
  shared.chunks = chunks;
  shared.unfinished.store(chunks, std::memory_order_relaxed);
  shared.untaken.store(MakeJob(active_, chunks));
  for (uint32_t i = 0; i + 1 < active_; ++i) {
    auto& asleep = shared.helpers[i]->asleep;
    if (asleep.load() == 1 && asleep.exchange(0) == 1) asleep.notify_one();
  }
  shared.TakeChunks(shared.caller);
  shared.AwaitCompletion();
}

}  // namespace bulkhead::kernels
