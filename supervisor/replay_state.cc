#include "supervisor/replay_state.h"

namespace bulkhead::supervisor {

bool ReplayState::Died(size_t produced, bool running, bool crashed, bool suspected) {
  if (produced > died_at + kBlameTokens) blamed = fruitless = 0;
  if (++fruitless > kMaxFruitless) return false;
  if (!running) return !crashed || ++failed_loads < kMaxFailedLoads;
  failed_loads = 0;
  if (crashed && suspected) {
    if (produced <= died_at + kBlameTokens) ++blamed;
    alone = true;
  }
  died_at = produced;
  return blamed < kMaxBlamed;
}

bool ReplayState::Produced(size_t produced) {
  if (produced <= died_at + kBlameTokens) return false;
  const bool was_alone = alone;
  alone = false;
  return was_alone;
}

}  // namespace bulkhead::supervisor
