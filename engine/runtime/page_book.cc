#include "engine/runtime/page_book.h"

#include <fmt/format.h>

namespace bulkhead::engine {

PageBook::PageBook(uint32_t pages) : entries_(pages) {
  free_.reserve(pages);
  for (uint32_t page = pages; page-- > 0;) free_.push_back(page);
}

std::optional<uint32_t> PageBook::Take() {
  if (free_.empty()) return std::nullopt;
  const uint32_t page = free_.back();
  free_.pop_back();
  entries_[page].owners = 1;
  return page;
}

void PageBook::Share(uint32_t page) {
  if (idle(page)) --idle_;
  ++entries_[page].owners;
}

void PageBook::Drop(uint32_t page) {
  if (--entries_[page].owners == 0) free_.push_back(page);
  if (idle(page)) ++idle_;
}

void PageBook::Cache(uint32_t page) {
  ++entries_[page].owners;
  entries_[page].cached = true;
  ++cached_;
}

void PageBook::Uncache(uint32_t page) {
  if (idle(page)) --idle_;
  entries_[page].cached = false;
  --cached_;
  if (--entries_[page].owners == 0) free_.push_back(page);
}

absl::Status PageBook::Check() const {
  std::vector<bool> listed(entries_.size());
  for (const uint32_t page : free_) {
    if (page >= entries_.size() || listed[page]) {
      return Error(Reason::kInternal, fmt::format("page {} of {} is listed as free twice", page, entries_.size()));
    }
    listed[page] = true;
  }
  uint64_t idle_pages = 0;
  uint64_t cached_pages = 0;
  for (uint32_t page = 0; page < entries_.size(); ++page) {
    const Entry& entry = entries_[page];
    if (listed[page] != (entry.owners == 0) || (entry.cached && entry.owners == 0)) {
      return Error(Reason::kInternal,
                   fmt::format("page {}: {} owners, {}, {}", page, entry.owners, listed[page] ? "free" : "not free",
                               entry.cached ? "cached" : "not cached"));
    }
    if (idle(page)) ++idle_pages;
    if (entry.cached) ++cached_pages;
  }
  if (idle_pages != idle_ || cached_pages != cached_) {
    return Error(Reason::kInternal, fmt::format("{} idle and {} cached pages, booked {} and {}", idle_pages,
                                                cached_pages, idle_, cached_));
  }
  return absl::OkStatus();
}

}  // namespace bulkhead::engine
