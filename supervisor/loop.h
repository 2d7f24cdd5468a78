// One libuv loop as the supervisor uses it: work posted for later, and deadlines on an injected clock. Everything that
// leaves the supervisor goes through Post, so nobody is called back inside his own call and the state is never touched
// half-way. Loop thread only.
#pragma once

#include <uv.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "base/clock.h"

namespace bulkhead::supervisor {

class Loop {
 public:
  using Task = std::function<void()>;

  Loop(uv_loop_t* uv, const Clock& clock);
  ~Loop();  // tasks and timers that are left are dropped; handles close on the loop's next turn
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  [[nodiscard]] uv_loop_t* uv() const { return uv_; }
  [[nodiscard]] const Clock& clock() const { return *clock_; }
  [[nodiscard]] Duration now() const { return clock_->Monotonic(); }

  // Runs later on the loop, in the order of posting.
  void Post(Task task);
  // Runs what is due by the clock; the loop does so itself, except under a FakeClock, which it cannot see move.
  void RunDue();

 private:
  friend class Timer;
  struct Handles;
  using Key = std::pair<Duration, uint64_t>;

  Key Add(Duration at, Task task);
  void Remove(const Key& key);
  void Arm();
  void DrainPosts();

  uv_loop_t* uv_;
  const Clock* clock_;
  std::deque<Task> posts_;
  std::map<Key, Task> timers_;
  uint64_t next_ = 0;
  Handles* handles_;  // freed by the last close callback
};

// One deadline. Destroying or re-arming it forgets the old one, so that a stale deadline never fires.
class Timer {
 public:
  explicit Timer(Loop& loop) : loop_(&loop) {}
  ~Timer() { Cancel(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  void Arm(Duration after, Loop::Task task);
  void Cancel();
  [[nodiscard]] bool armed() const { return armed_; }
  // When it fires, monotonic; zero where it is not armed.
  [[nodiscard]] Duration at() const { return armed_ ? key_.first : Duration(0); }

 private:
  Loop* loop_;
  Loop::Key key_;
  bool armed_ = false;
};

}  // namespace bulkhead::supervisor
