#include "engine/sampling/stop_matcher.h"

#include <deque>

namespace bulkhead::engine {

StopMatcher::StopMatcher(const std::vector<std::string>& stops) : nodes_(1) {
  for (size_t i = 0; i < stops.size(); ++i) {
    lengths_.push_back(stops[i].size());
    if (!stops[i].empty()) AddString(stops[i], static_cast<int32_t>(i));
  }
  LinkFailures();
}

uint32_t StopMatcher::Child(uint32_t node, uint8_t byte) const {
  uint32_t child = nodes_[node].first_child;
  while (child != 0 && nodes_[child].byte != byte) child = nodes_[child].next_sibling;
  return child;
}

void StopMatcher::AddString(const std::string& stop, int32_t index) {
  uint32_t node = 0;
  for (const char c : stop) {
    const auto byte = static_cast<uint8_t>(c);
    uint32_t child = Child(node, byte);
    if (child == 0) {
      child = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({.depth = nodes_[node].depth + 1, .next_sibling = nodes_[node].first_child, .byte = byte});
      nodes_[node].first_child = child;
    }
    node = child;
  }
  // Of equal strings the first is named.
  if (nodes_[node].longest_match < 0) nodes_[node].longest_match = index;
}

void StopMatcher::LinkFailures() {
  std::deque<uint32_t> queue = {0};
  while (!queue.empty()) {
    const uint32_t node = queue.front();
    queue.pop_front();
    for (uint32_t child = nodes_[node].first_child; child != 0; child = nodes_[child].next_sibling) {
      nodes_[child].fail = node == 0 ? 0 : Step(nodes_[node].fail, nodes_[child].byte);
      // A string that ends here itself is longer than any that ends at the failure node.
      if (nodes_[child].longest_match < 0) nodes_[child].longest_match = nodes_[nodes_[child].fail].longest_match;
      queue.push_back(child);
    }
  }
}

uint32_t StopMatcher::Step(uint32_t node, uint8_t byte) const {
  for (;;) {
    if (const uint32_t child = Child(node, byte); child != 0) return child;
    if (node == 0) return 0;
    node = nodes_[node].fail;
  }
}

std::optional<size_t> StopMatcher::Push(std::string_view bytes, std::string& released) {
  for (const char c : bytes) {
    if (matched_.has_value()) break;
    held_.push_back(c);
    state_ = Step(state_, static_cast<uint8_t>(c));
    const Node& node = nodes_[state_];
    size_t keep = node.depth;
    if (node.longest_match >= 0) {
      matched_ = static_cast<size_t>(node.longest_match);
      keep = lengths_[*matched_];
    }
    if (held_.size() > keep) {
      released.append(held_, 0, held_.size() - keep);
      held_.erase(0, held_.size() - keep);
    }
  }
  if (matched_.has_value()) held_.clear();
  return matched_;
}

void StopMatcher::Flush(std::string& released) {
  released.append(held_);
  held_.clear();
  state_ = 0;
}

}  // namespace bulkhead::engine
