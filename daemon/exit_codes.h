// How bulkheadd exits; docs/operations.md and the unit's RestartPreventExitStatus= name them.
#pragma once

namespace bulkhead::daemon {

enum DaemonExit : int {
  kExitOk = 0,
  kExitFatal = 1,
  kExitUsage = 2,
  kExitLocked = 75,  // another daemon holds the state directory
  kExitConfig = 78,
};

}  // namespace bulkhead::daemon
