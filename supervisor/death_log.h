// The last hundred deaths, newest last, kept over restarts. Loop thread only. What a record may hold: no prompt, output
// or name of a passed file except what the worker itself wrote to stderr.
#pragma once

#include <uv.h>

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "bulkhead/v1/types.pb.h"
#include "supervisor/state_file.h"

namespace bulkhead::supervisor {

inline constexpr size_t kMaxDeaths = 100;

class DeathLog {
 public:
  // Reads "deaths" in `directory`; a file that makes no sense is set aside with a warning.
  DeathLog(uv_loop_t* loop, const std::string& directory, StateFile::Warn warn);

  // Gives the record its id, ascending over restarts, and returns it.
  uint64_t Add(v1::Death death);
  [[nodiscard]] std::vector<v1::Death> All() const { return {deaths_.begin(), deaths_.end()}; }

 private:
  absl::Status Parse(std::string_view bytes);
  [[nodiscard]] std::string Serialise() const;

  StateFile file_;
  std::deque<v1::Death> deaths_;
  uint64_t last_id_ = 0;
};

}  // namespace bulkhead::supervisor
