// Makes this process's scheduling group step back while its model is loaded, so that loading one model leaves the
// tokens of another alone. A nice value only orders threads within one group, and Linux makes a group of each session
// (sched(7), autogroup) where the processes are in no cgroup of their own for the CPU; a worker is a session.
//
// Main thread only. The kernel takes a new value at most ten times a second from the whole machine, so a change may
// take some turns. Where there are no such groups, or this process shares one, nothing happens.
#pragma once

#include "base/clock.h"
#include "base/fd.h"

namespace bulkhead::worker {

class GroupPriority {
 public:
  // Before paths are given up.
  static GroupPriority OfThisProcess();

  // 0 is as everybody, 19 steps back behind all others. Lasting is only a value that was reached: see OnTurn.
  void Want(int nice) { wanted_ = nice; }
  // Does what is due, and says when it wants to be called again; max() where there is nothing left to do.
  Duration OnTurn(Duration now);

 private:
  UniqueFd file_;
  int wanted_ = 0;
  int reached_ = 0;
  Duration next_try_{};
};

}  // namespace bulkhead::worker
