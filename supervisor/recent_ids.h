// The last few thousand ids of something, to tell "has ended" from "never was". Not thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <set>
#include <string>
#include <string_view>

namespace bulkhead::supervisor {

class RecentIds {
 public:
  explicit RecentIds(size_t capacity) : capacity_(capacity) {}

  void Add(std::string id) {
    if (!set_.insert(id).second) return;
    order_.push_back(std::move(id));
    if (order_.size() <= capacity_) return;
    set_.erase(order_.front());
    order_.pop_front();
  }
  [[nodiscard]] bool Contains(std::string_view id) const { return set_.contains(id); }

 private:
  size_t capacity_;
  std::deque<std::string> order_;
  std::set<std::string, std::less<>> set_;
};

}  // namespace bulkhead::supervisor
