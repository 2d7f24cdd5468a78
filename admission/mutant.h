// Deliberate faults for tests/sim, which must find each of them. -DBULKHEAD_MUTANT=n compiles fault n in; without it
// Mutant() is false at compile time and the product holds no trace of any.
#pragma once

namespace bulkhead::admission {

#ifndef BULKHEAD_MUTANT
#define BULKHEAD_MUTANT 0
#endif

enum class Fault : int {
  kSkipSettle = 1,         // a charge is retired without settlement
  kFreeTwice = 2,          // an allocation can be freed again
  kConfirmBeforeReap = 3,  // a release is confirmed when teardown starts
  kLoseWakeUp = 4,         // a free looks at no waiter
  kEvictBusy = 5,          // busy workers are planned for eviction
  kEvictPinned = 6,        // pinned workers are planned for eviction
  kWeightsTwice = 7,       // weights are charged for every worker that maps them
  kIgnorePromise = 8,      // memory promised to one waiter is given to the next
  kPolicyGoesBack = 9,     // an older policy generation is taken
  kChargeWithTicket = 10,  // dropping the last ticket retires the charge of a live process
  kLoaderLast = 11,        // the request that loaded a worker is served after the others
  kStuckIsFree = 12,       // a worker that could not be killed is no longer charged
};

constexpr bool Mutant(Fault fault) { return BULKHEAD_MUTANT == static_cast<int>(fault); }

}  // namespace bulkhead::admission
