// A libuv loop for one test: runs until a condition holds or a bound passes, and is drained at the end.
#pragma once

#include <gtest/gtest.h>
#include <uv.h>

#include <chrono>
#include <functional>

namespace bulkhead::daemon {

class TestLoop {
 public:
  TestLoop() { uv_loop_init(&loop_); }
  ~TestLoop() {
    uv_walk(
        &loop_,
        [](uv_handle_t* handle, void*) {
          if (!uv_is_closing(handle)) uv_close(handle, nullptr);
        },
        nullptr);
    uv_run(&loop_, UV_RUN_DEFAULT);
    EXPECT_EQ(uv_loop_close(&loop_), 0);
  }
  TestLoop(const TestLoop&) = delete;
  TestLoop& operator=(const TestLoop&) = delete;

  uv_loop_t* get() { return &loop_; }

  // False where the bound passed first.
  bool RunUntil(const std::function<bool()>& condition, std::chrono::seconds bound = std::chrono::seconds(20)) {
    const auto end = std::chrono::steady_clock::now() + bound;
    uv_timer_t tick;
    uv_timer_init(&loop_, &tick);
    uv_timer_start(
        &tick, [](uv_timer_t*) {}, 1, 1);
    bool met = condition();
    while (!met && std::chrono::steady_clock::now() < end) {
      uv_run(&loop_, UV_RUN_ONCE);
      met = condition();
    }
    bool closed = false;
    tick.data = &closed;
    uv_close(reinterpret_cast<uv_handle_t*>(&tick),
             [](uv_handle_t* handle) { *static_cast<bool*>(handle->data) = true; });
    while (!closed) uv_run(&loop_, UV_RUN_ONCE);
    return met;
  }

  // What is ready now, without waiting.
  void RunReady() {
    for (int i = 0; i < 8; ++i) uv_run(&loop_, UV_RUN_NOWAIT);
  }

 private:
  uv_loop_t loop_ = {};
};

}  // namespace bulkhead::daemon
