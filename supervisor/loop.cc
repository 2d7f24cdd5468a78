#include "supervisor/loop.h"

#include <algorithm>

namespace bulkhead::supervisor {

// The idle handle keeps the loop from sleeping while something is posted; the check handle runs posts right after poll.
struct Loop::Handles {
  uv_idle_t idle = {};
  uv_check_t check = {};
  uv_timer_t timer = {};
  Loop* owner = nullptr;
  int open = 3;

  static Loop* OwnerOf(void* data) { return static_cast<Handles*>(data)->owner; }
  static void OnClose(uv_handle_t* handle) {
    auto* self = static_cast<Handles*>(handle->data);
    if (--self->open == 0) delete self;
  }
};

Loop::Loop(uv_loop_t* uv, const Clock& clock) : uv_(uv), clock_(&clock), handles_(new Handles) {
  handles_->owner = this;
  uv_idle_init(uv_, &handles_->idle);
  uv_check_init(uv_, &handles_->check);
  uv_timer_init(uv_, &handles_->timer);
  handles_->idle.data = handles_->check.data = handles_->timer.data = handles_;
  // The check handle alone keeps no loop alive; posts and armed deadlines do.
  uv_unref(reinterpret_cast<uv_handle_t*>(&handles_->check));
  uv_check_start(&handles_->check, [](uv_check_t* handle) {
    if (Loop* owner = Handles::OwnerOf(handle->data)) owner->DrainPosts();
  });
}

Loop::~Loop() {
  handles_->owner = nullptr;
  uv_close(reinterpret_cast<uv_handle_t*>(&handles_->idle), Handles::OnClose);
  uv_close(reinterpret_cast<uv_handle_t*>(&handles_->check), Handles::OnClose);
  uv_close(reinterpret_cast<uv_handle_t*>(&handles_->timer), Handles::OnClose);
}

void Loop::Post(Task task) {
  posts_.push_back(std::move(task));
  if (posts_.size() == 1) {
    uv_idle_start(&handles_->idle, [](uv_idle_t* handle) {
      if (Loop* owner = Handles::OwnerOf(handle->data)) owner->DrainPosts();
    });
  }
}

void Loop::DrainPosts() {
  // Only what was posted before this turn: a task that posts itself must not starve the sockets.
  Handles* handles = handles_;
  for (size_t left = posts_.size(); left > 0; --left) {
    Task task = std::move(posts_.front());
    posts_.pop_front();
    task();
    // A task may destroy this very loop object; the handles outlive it until libuv has closed them.
    if (handles->owner == nullptr) return;
  }
  if (posts_.empty()) uv_idle_stop(&handles_->idle);
}

Loop::Key Loop::Add(Duration at, Task task) {
  const Key key{at, ++next_};
  timers_.emplace(key, std::move(task));
  if (timers_.begin()->first == key) Arm();
  return key;
}

void Loop::Remove(const Key& key) {
  const bool first = !timers_.empty() && timers_.begin()->first == key;
  timers_.erase(key);
  if (first) Arm();
}

void Loop::Arm() {
  if (timers_.empty()) {
    uv_timer_stop(&handles_->timer);
    return;
  }
  const Duration left = std::max(timers_.begin()->first.first - now(), Duration(0));
  // Rounded up: a deadline never fires early by the clock that set it.
  const auto ms = static_cast<uint64_t>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
  uv_update_time(uv_);
  uv_timer_start(
      &handles_->timer,
      [](uv_timer_t* handle) {
        if (Loop* owner = Handles::OwnerOf(handle->data)) owner->RunDue();
      },
      ms, 0);
}

void Loop::RunDue() {
  Handles* handles = handles_;
  const Duration until = now();
  while (!timers_.empty() && timers_.begin()->first.first <= until) {
    auto node = timers_.extract(timers_.begin());
    node.mapped()();
    if (handles->owner == nullptr) return;
  }
  Arm();
}

void Timer::Arm(Duration after, Loop::Task task) {
  Cancel();
  armed_ = true;
  key_ = loop_->Add(loop_->now() + after, [this, task = std::move(task)] {
    armed_ = false;
    // A copy: the task may re-arm this timer or destroy it.
    const Loop::Task run = task;
    run();
  });
}

void Timer::Cancel() {
  if (!armed_) return;
  armed_ = false;
  loop_->Remove(key_);
}

}  // namespace bulkhead::supervisor
