// Where the test build of the worker (tests/worker/hooked_worker_main.cc) reaches into its life. The real program
// passes none and refuses a Configure that asks for one.
#pragma once

#include <cstdint>
#include <string_view>

namespace bulkhead::worker {

enum class HookPoint : uint8_t {
  kSpawned,         // main, nothing done yet: before the parent-death signal
  kLoadFilterMain,  // main, the LOAD filter just entered
  kLoadFilterThread,
  kRunFilterMain,  // main, the RUN filter just entered
  kRunFilterThread,
};

class Hooks {
 public:
  virtual ~Hooks() = default;
  // Takes Configure.test_hook; false refuses it.
  virtual bool Configure(std::string_view hook) = 0;
  // True: neither Landlock nor the system call filters.
  [[nodiscard]] virtual bool fence_off() const = 0;
  virtual void At(HookPoint point) = 0;
  // Loader thread, at each report of progress.
  virtual void OnLoadProgress() = 0;
  // Engine thread, after each step: tokens produced since READY.
  virtual void OnTokens(uint64_t total) = 0;
};

}  // namespace bulkhead::worker
