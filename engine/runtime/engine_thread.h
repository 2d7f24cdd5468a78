// One thread with a small stack that runs closures in order. It exists before the model does: the worker starts it
// (and the compute pool) before its system call filter, loads the model on it, and hands it to ContinuousBatchEngine,
// whose loop is its last closure.
//
// Post is thread-safe. The destructor runs what was posted and joins.
#pragma once

#include <pthread.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>

namespace bulkhead::engine {

class EngineThread {
 public:
  static constexpr size_t kStackBytes = 512 * 1024;

  // Starts the thread; aborts the process where even that fails. `name` is at most 15 characters (shown by ps -T).
  explicit EngineThread(const char* name = "engine");
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;
  ~EngineThread();

  void Post(std::function<void()> closure);

 private:
  static void* Main(void* self);
  void Run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> closures_;
  bool stopping_ = false;
  pthread_t thread_{};
};

}  // namespace bulkhead::engine
