#include "engine/runtime/plan_runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/model/model_config.h"

namespace bulkhead::engine {
namespace {

uint64_t PagesFor(uint64_t tokens) { return (tokens + kPagePositions - 1) / kPagePositions; }

absl::Status CheckShape(const MemoryShape& shape) {
  if (shape.context == 0 || shape.context > ModelConfig::kMaxContext) {
    return Error(Reason::kInvalidRequest,
                 fmt::format("context: {} is outside 1..{}", shape.context, ModelConfig::kMaxContext));
  }
  if (shape.sequences == 0 || shape.sequences > PlanRuntime::kMaxSequences) {
    return Error(Reason::kInvalidRequest,
                 fmt::format("sequences: {} is outside 1..{}", shape.sequences, PlanRuntime::kMaxSequences));
  }
  if (shape.forward_rows < shape.sequences) {
    return Error(Reason::kInvalidRequest,
                 fmt::format("a forward of {} rows cannot serve {} sequences", shape.forward_rows, shape.sequences));
  }
  if (PoolPages(shape) > UINT32_MAX) {
    return Error(Reason::kInvalidRequest, fmt::format("{} KV pages, at most {}", PoolPages(shape), UINT32_MAX));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PlanRuntime>> PlanRuntime::Create(const ModelConfig& config, const MemoryShape& shape) {
  RETURN_IF_ERROR(CheckShape(shape));
  ASSIGN_OR_RETURN(KvPool kv, KvPool::Map(config, shape));
  ASSIGN_OR_RETURN(StatePool states, StatePool::Map(config, shape));
  ASSIGN_OR_RETURN(Workspace workspace, Workspace::Map(config, shape));
  return std::unique_ptr<PlanRuntime>(new PlanRuntime(shape, std::move(kv), std::move(states), std::move(workspace)));
}

PlanRuntime::PlanRuntime(const MemoryShape& shape, KvPool kv, StatePool states, Workspace workspace)
    : shape_(shape),
      kv_(std::move(kv)),
      states_(std::move(states)),
      workspace_(std::move(workspace)),
      slots_(shape.sequences),
      book_(static_cast<uint32_t>(kv_.pages())),
      cache_(&book_, &states_) {}

Admission PlanRuntime::Admit(const Demand& demand) {
  using Verdict = Admission::Verdict;
  if (demand.limit > shape_.context || PagesFor(demand.limit) > kv_.pages()) {
    return {Verdict::kNeverFits, Shortage::kPages, 0};
  }
  uint32_t slot = 0;
  while (slot < slots_.size() && slots_[slot].used) ++slot;
  if (slot == slots_.size()) return {Verdict::kDeferred, Shortage::kSequences, 0};
  const uint64_t wanted = PagesFor(std::min(demand.now, demand.limit));
  if (wanted > available()) return {Verdict::kDeferred, Shortage::kPages, 0};
  slots_[slot] = {.used = true, .reserved_pages = wanted, .limit = demand.limit};
  if (demand.salt != nullptr) slots_[slot].salt = *demand.salt;
  reserved_ += wanted;
  states_.Reset(slot);
  return {Verdict::kAdmitted, Shortage::kSequences, slot};
}

bool PlanRuntime::Reserve(uint32_t slot, uint32_t tokens) {
  Slot& lease = slots_[slot];
  const uint64_t own = kv_.Table(slot).size() - (lease.borrowed_tail ? 1 : 0) + lease.reserved_pages;
  const uint64_t wanted = PagesFor(std::min(tokens, lease.limit));
  if (wanted <= own) return true;
  if (wanted - own > available()) return false;
  lease.reserved_pages += wanted - own;
  reserved_ += wanted - own;
  return true;
}

// What is reserved is free or idle, so one of the two gives a page.
uint32_t PlanRuntime::TakeReserved(Slot& slot) {
  auto page = book_.Take();
  while (!page && cache_.EvictOne()) page = book_.Take();
  --slot.reserved_pages;
  --reserved_;
  return *page;
}

absl::Status PlanRuntime::Grow(uint32_t slot, uint32_t tokens, uint32_t from) {
  Slot& lease = slots_[slot];
  auto& table = kv_.Table(slot);
  const auto short_of_pages = [&] {
    return Error(Reason::kInternal, fmt::format("slot {}: {} tokens exceed the {} pages it has and is promised none",
                                                slot, tokens, table.size()));
  };
  if (lease.salt && !lease.counted) CountUse(lease, false);
  for (size_t page = from / kPagePositions; page < std::min<uint64_t>(table.size(), PagesFor(tokens)); ++page) {
    if (book_.owners(table[page]) == 1) continue;
    if (lease.reserved_pages == 0) return short_of_pages();
    const uint32_t copy = TakeReserved(lease);
    kv_.CopyPage(table[page], copy);
    book_.Drop(table[page]);
    table[page] = copy;
    lease.borrowed_tail = false;
  }
  while (table.size() < PagesFor(tokens)) {
    if (lease.reserved_pages == 0) return short_of_pages();
    table.push_back(TakeReserved(lease));
  }
  return absl::OkStatus();
}

void PlanRuntime::CountUse(Slot& slot, bool hit) {
  cache_.CountUse(hit);
  slot.counted = true;
}

uint32_t PlanRuntime::Parent(Slot& slot, bool make) {
  if (slot.published > 0) return slot.node;
  return make ? cache_.Root(*slot.salt) : cache_.FindRoot(*slot.salt);
}

// Pages taken for a forward that was given up hold nothing yet.
void PlanRuntime::TrimToPublished(uint32_t slot) {
  auto& table = kv_.Table(slot);
  while (table.size() > slots_[slot].published) {
    book_.Drop(table.back());
    table.pop_back();
    ++slots_[slot].reserved_pages;
    ++reserved_;
  }
}

uint32_t PlanRuntime::Adopt(uint32_t slot, std::span<const int32_t> tokens, uint32_t computed) {
  Slot& lease = slots_[slot];
  if (!lease.salt || lease.borrowed_tail || computed != lease.published * kPagePositions || tokens.empty()) {
    return computed;
  }
  uint32_t node = Parent(lease, false);
  if (node == PrefixCache::kNone) return computed;
  const auto most = std::min(static_cast<uint32_t>(tokens.size()) - 1, lease.limit);
  const uint64_t room = lease.reserved_pages + kv_.Table(slot).size() - lease.published;
  std::vector<uint32_t> path;
  size_t usable = 0;
  uint32_t position = computed;
  while (path.size() < room && position + kPagePositions <= most) {
    const uint32_t next = cache_.Find(node, tokens.subspan(position, kPagePositions));
    if (next == PrefixCache::kNone) break;
    path.push_back(node = next);
    position += kPagePositions;
    if (!states_.used() || cache_.state(node)) usable = path.size();
  }
  auto beginning = cache_.FindBeginning(
      node, tokens.subspan(position, std::min(kPagePositions, std::max(most, position) - position)), states_.used());
  // A page that others do not hold is no longer there to be evicted.
  const bool held = beginning.node != PrefixCache::kNone && !book_.idle(cache_.page(beginning.node));
  if (path.size() == room || (!held && available() == 0)) beginning = {};
  if (beginning.node == PrefixCache::kNone) path.resize(usable);
  if (path.empty() && beginning.node == PrefixCache::kNone) return computed;
  TrimToPublished(slot);
  const uint32_t last = TakePages(slot, path, beginning.node);
  if (states_.used()) states_.Restore(slot, *cache_.state(last));
  const auto now = computed + static_cast<uint32_t>(path.size()) * kPagePositions + beginning.tokens;
  cache_.CountSaved(now - computed);
  if (!lease.counted) CountUse(lease, true);
  return now;
}

uint32_t PlanRuntime::Cached(uint32_t slot, std::span<const int32_t> tokens) const {
  const Slot& lease = slots_[slot];
  uint32_t node = lease.salt ? cache_.FindRoot(*lease.salt) : PrefixCache::kNone;
  uint32_t position = 0;
  while (node != PrefixCache::kNone && position + kPagePositions <= tokens.size()) {
    node = cache_.Find(node, tokens.subspan(position, kPagePositions));
    if (node != PrefixCache::kNone) position += kPagePositions;
  }
  return position;
}

// A whole page takes the place of one that was reserved; a beginning will be copied into one.
uint32_t PlanRuntime::TakePages(uint32_t slot, const std::vector<uint32_t>& path, uint32_t beginning) {
  Slot& lease = slots_[slot];
  auto& table = kv_.Table(slot);
  for (const uint32_t node : path) {
    book_.Share(cache_.page(node));
    table.push_back(cache_.page(node));
    --lease.reserved_pages;
    --reserved_;
    ++lease.published;
    lease.node = node;
  }
  uint32_t last = lease.node;
  if (beginning != PrefixCache::kNone) {
    book_.Share(cache_.page(beginning));
    table.push_back(cache_.page(beginning));
    lease.borrowed_tail = true;
    last = beginning;
  }
  cache_.Touch(last);
  return last;
}

bool PlanRuntime::PublishPage(uint32_t slot, std::span<const int32_t> tokens) {
  Slot& lease = slots_[slot];
  uint32_t& page = kv_.Table(slot)[lease.published];
  const uint32_t node = cache_.Insert(Parent(lease, true), tokens, page);
  if (node == PrefixCache::kNone) {
    lease.salt.reset();
    return false;
  }
  // Somebody else computed the same, bit for bit: one of the two pages is enough.
  if (cache_.page(node) != page) {
    book_.Share(cache_.page(node));
    book_.Drop(page);
    page = cache_.page(node);
  }
  lease.node = node;
  ++lease.published;
  return true;
}

void PlanRuntime::Publish(uint32_t slot, std::span<const int32_t> computed, bool checkpoint) {
  Slot& lease = slots_[slot];
  while (lease.salt && (uint64_t{lease.published} + 1) * kPagePositions <= computed.size()) {
    if (!PublishPage(slot, computed.subspan(lease.published * kPagePositions, kPagePositions))) return;
  }
  if (!checkpoint || !states_.used() || !lease.salt || lease.published == 0) return;
  if (states_.Position(slot) == lease.published * kPagePositions) cache_.Checkpoint(lease.node, slot);
}

void PlanRuntime::PublishEnd(uint32_t slot, std::span<const int32_t> computed) {
  Publish(slot, computed, true);
  Slot& lease = slots_[slot];
  if (!lease.salt || lease.borrowed_tail) return;
  const auto rest = computed.subspan(lease.published * kPagePositions);
  if (rest.empty()) return;
  const uint32_t parent = Parent(lease, true);
  // The beginning of a page that is there serves as well, where no state has to stand at its end.
  if (!states_.used() && cache_.FindBeginning(parent, rest, false).tokens == rest.size()) return;
  const uint32_t node = cache_.Insert(parent, rest, kv_.Table(slot)[lease.published]);
  if (node != PrefixCache::kNone && states_.used() && states_.Position(slot) == computed.size()) {
    cache_.Checkpoint(node, slot);
  }
}

void PlanRuntime::Release(uint32_t slot) {
  auto& table = kv_.Table(slot);
  for (; !table.empty(); table.pop_back()) book_.Drop(table.back());
  reserved_ -= slots_[slot].reserved_pages;
  slots_[slot] = {};
}

PageCounts PlanRuntime::Pages() const { return {book_.total(), book_.free(), reserved_, book_.idle()}; }

absl::StatusOr<RuntimeSnapshot> PlanRuntime::Snapshot() const {
  RuntimeSnapshot snapshot{.pages = Pages(),
                           .max_sequences = shape_.sequences,
                           .free_states = states_.free_snapshots(),
                           .cache = cache_.counts()};
  uint64_t promised = 0;
  for (const Slot& slot : slots_) {
    if (slot.used) ++snapshot.sequences;
    promised += slot.reserved_pages;
  }
  const PageCounts& pages = snapshot.pages;
  if (pages.free + pages.idle > pages.total || pages.reserved > pages.free + pages.idle || promised != pages.reserved) {
    return Error(Reason::kInternal,
                 fmt::format("KV pages: {} in all, {} free, {} idle, {} reserved, {} promised to sequences",
                             pages.total, pages.free, pages.idle, pages.reserved, promised));
  }
  return snapshot;
}

absl::Status PlanRuntime::Audit() const {
  RETURN_IF_ERROR(Snapshot().status());
  RETURN_IF_ERROR(book_.Check());
  RETURN_IF_ERROR(cache_.Check());
  std::vector<uint32_t> owners(kv_.pages());
  for (uint32_t id = 0; id < slots_.size(); ++id) {
    const Slot& slot = slots_[id];
    const auto& table = kv_.Table(id);
    for (const uint32_t page : table) ++owners[page];
    const bool fits = table.size() >= slot.published + (slot.borrowed_tail ? 1U : 0U);
    const bool linked = slot.published == 0 || (fits && cache_.page(slot.node) == table[slot.published - 1]);
    if ((!slot.used && !table.empty()) || !fits || !linked) {
      return Error(Reason::kInternal, fmt::format("slot {}: {} pages, {} published, {}", id, table.size(),
                                                  slot.published, slot.used ? "in use" : "not in use"));
    }
  }
  for (uint32_t page = 0; page < owners.size(); ++page) {
    if (owners[page] + (book_.cached(page) ? 1 : 0) != book_.owners(page)) {
      return Error(Reason::kInternal, fmt::format("page {}: {} in tables, cached: {}, booked {}", page, owners[page],
                                                  book_.cached(page), book_.owners(page)));
    }
  }
  if (states_.free_snapshots() + cache_.counts().checkpoints != states_.snapshots()) {
    return Error(Reason::kInternal, fmt::format("{} snapshots of state, {} free, {} in the cache", states_.snapshots(),
                                                states_.free_snapshots(), cache_.counts().checkpoints));
  }
  return absl::OkStatus();
}

}  // namespace bulkhead::engine
