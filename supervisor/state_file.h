// One small file in the state directory, replaced atomically and off the loop thread (tmp, fsync, rename), so that a
// full or slow disk costs history, never service. Loop thread only; one write is under way at a time, the latest wins.
#pragma once

#include <uv.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"

namespace bulkhead::supervisor {

class StateFile {
 public:
  using Warn = std::function<void(std::string)>;

  // An empty directory: nothing is stored.
  StateFile(uv_loop_t* loop, std::string directory, std::string name, Warn warn);
  ~StateFile();  // a write under way finishes on its own
  StateFile(const StateFile&) = delete;
  StateFile& operator=(const StateFile&) = delete;

  // Reads the file now; for start-up. nullopt where there is none (or it cannot be read, with a warning).
  [[nodiscard]] std::optional<std::string> Load() const;
  // Whether there is a trace of an earlier one: it may be unreadable now, or set aside. For start-up.
  [[nodiscard]] bool WasKept() const;
  // Puts a file that made no sense out of the way, with a warning, as "<name>.corrupt".
  void SetAside(const std::string& why) const;
  void Save(std::string bytes);
  // For start-up only: waits for the disk.
  absl::Status SaveNow(const std::string& bytes) const;

 private:
  struct Shared;
  static void Start(const std::shared_ptr<Shared>& shared);

  std::shared_ptr<Shared> shared_;
};

}  // namespace bulkhead::supervisor
