#include "engine/runtime/engine_thread.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace bulkhead::engine {

EngineThread::EngineThread(const char* name) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  const int error = pthread_create(&thread_, &attributes, &EngineThread::Main, this);
  pthread_attr_destroy(&attributes);
  if (error != 0) {
    std::fprintf(stderr, "cannot start thread %s: error %d\n", name, error);
    std::abort();
  }
  pthread_setname_np(thread_, name);
}

EngineThread::~EngineThread() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  pthread_join(thread_, nullptr);
}

void EngineThread::Post(std::function<void()> closure) {
  {
    std::lock_guard lock(mutex_);
    closures_.push_back(std::move(closure));
  }
  wake_.notify_one();
}

void* EngineThread::Main(void* self) {
  static_cast<EngineThread*>(self)->Run();
  return nullptr;
}

void EngineThread::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !closures_.empty(); });
    if (closures_.empty()) return;
    auto closure = std::move(closures_.front());
    closures_.pop_front();
    lock.unlock();
    closure();
    closure = nullptr;
    lock.lock();
  }
}

}  // namespace bulkhead::engine
