#include "engine/runtime/plan_runtime.h"

#include <fmt/format.h>

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
      slots_(shape.sequences) {
  const auto pages = static_cast<uint32_t>(kv_.pages());
  free_pages_.reserve(pages);
  for (uint32_t page = pages; page-- > 0;) free_pages_.push_back(page);
}

Admission PlanRuntime::Admit(uint32_t tokens) {
  using Verdict = Admission::Verdict;
  const uint64_t wanted = PagesFor(tokens);
  if (tokens > shape_.context || wanted > kv_.pages()) return {Verdict::kNeverFits, Shortage::kPages, 0};
  uint32_t slot = 0;
  while (slot < slots_.size() && slots_[slot].used) ++slot;
  if (slot == slots_.size()) return {Verdict::kDeferred, Shortage::kSequences, 0};
  if (wanted > free_pages_.size() - reserved_) return {Verdict::kDeferred, Shortage::kPages, 0};
  slots_[slot] = {true, wanted};
  reserved_ += wanted;
  states_.Reset(slot);
  return {Verdict::kAdmitted, Shortage::kSequences, slot};
}

absl::Status PlanRuntime::Grow(uint32_t slot, uint32_t tokens) {
  auto& table = kv_.Table(slot);
  while (table.size() < PagesFor(tokens)) {
    if (slots_[slot].reserved_pages == 0) {
      return Error(Reason::kInternal, fmt::format("slot {}: {} tokens exceed the {} pages it was admitted with", slot,
                                                  tokens, table.size()));
    }
    table.push_back(free_pages_.back());
    free_pages_.pop_back();
    --slots_[slot].reserved_pages;
    --reserved_;
  }
  return absl::OkStatus();
}

void PlanRuntime::Release(uint32_t slot) {
  auto& table = kv_.Table(slot);
  free_pages_.insert(free_pages_.end(), table.rbegin(), table.rend());
  table.clear();
  reserved_ -= slots_[slot].reserved_pages;
  slots_[slot] = {};
}

PageCounts PlanRuntime::Pages() const { return {kv_.pages(), free_pages_.size(), reserved_}; }

}  // namespace bulkhead::engine
