// Who owns which KV page: a count of owners for each, the list of those that have none. Owners are sequences and, at
// most once a page, the prefix cache; a page that the cache alone owns is idle, and given up when somebody needs it.
// Pure; used by one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"

namespace bulkhead::engine {

class PageBook {
 public:
  explicit PageBook(uint32_t pages);

  // A free page, with the caller as its one owner; nullopt where none is free.
  std::optional<uint32_t> Take();
  // One owner more, and one fewer: the last one frees the page.
  void Share(uint32_t page);
  void Drop(uint32_t page);
  // The cache becomes an owner, and ceases to be one.
  void Cache(uint32_t page);
  void Uncache(uint32_t page);

  [[nodiscard]] uint32_t owners(uint32_t page) const { return entries_[page].owners; }
  [[nodiscard]] bool cached(uint32_t page) const { return entries_[page].cached; }
  [[nodiscard]] bool idle(uint32_t page) const { return entries_[page].cached && entries_[page].owners == 1; }
  [[nodiscard]] uint64_t total() const { return entries_.size(); }
  [[nodiscard]] uint64_t free() const { return free_.size(); }
  [[nodiscard]] uint64_t idle() const { return idle_; }
  [[nodiscard]] uint64_t cached() const { return cached_; }

  // kInternal with the page at fault, where the list of free pages and the counts contradict each other.
  [[nodiscard]] absl::Status Check() const;

 private:
  struct Entry {
    uint32_t owners = 0;
    bool cached = false;
  };

  std::vector<Entry> entries_;
  std::vector<uint32_t> free_;  // the next one last
  uint64_t idle_ = 0;
  uint64_t cached_ = 0;
};

}  // namespace bulkhead::engine
