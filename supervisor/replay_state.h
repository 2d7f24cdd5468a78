// How often a request has lost its worker, and whether it is to be blamed for it. Passive and pure; the supervisor
// tells it of every death and asks it before the next try.
//
// A death counts against a request only if the request had got no further than kBlameTokens past its last point of
// death; two such in a row are enough. A kill from outside, or on purpose, is nobody's fault and counts for nobody, but
// without any progress such deaths are bounded too.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bulkhead::supervisor {

struct ReplayState {
  static constexpr size_t kBlameTokens = 16;
  static constexpr uint32_t kMaxBlamed = 2;
  static constexpr uint32_t kMaxFruitless = 64;
  static constexpr uint32_t kMaxFailedLoads = 3;

  uint32_t attempts = 0;      // deaths it went through since it started
  uint32_t blamed = 0;        // in a row
  uint32_t fruitless = 0;     // deaths in a row without progress, whoever's fault
  uint32_t failed_loads = 0;  // workers in a row that crashed before this request was in them
  size_t died_at = 0;         // tokens produced at the last death
  bool alone = false;         // in quarantine: no other request of this model that is runs at the same time

  // Its worker died when it had produced `produced` tokens. `running`: it was in the worker; `crashed`: neither a kill
  // from outside nor on purpose; `suspected`: it may have been this request. False where it is not tried again.
  bool Died(size_t produced, bool running, bool crashed, bool suspected);
  // It has `produced` tokens. True where that has just ended its quarantine.
  bool Produced(size_t produced);
};

}  // namespace bulkhead::supervisor
