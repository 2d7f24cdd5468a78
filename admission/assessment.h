// What would become of one request, were it the next to be looked at. The coordinator carries the answer out, preflight
// explains it; both ask here, so they cannot differ. Nothing is changed.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "admission/learned.h"
#include "admission/ledger.h"
#include "admission/memory_plan.h"
#include "admission/request.h"
#include "admission/verdict.h"

namespace bulkhead::admission {

// Bytes, or tokens with CONTEXT_TOO_LARGE.
struct Figures {
  uint64_t asked = 0;
  uint64_t available = 0;
  uint64_t limit = 0;
};

struct Assessment {
  enum class Kind : uint8_t { kLease, kLoad, kWait, kRefuse };
  Kind kind = Kind::kRefuse;
  Verdict verdict = Verdict::kAllowed;
  AllocationId lease = 0;  // kLease
  Shape shape{};           // kLoad; kWait for memory: the smallest that would do
  Charge charge{};
  bool claims = false;        // kWait: `charge` is promised to it, nobody behind may take it
  bool for_sequence = false;  // kWait: for a free sequence of a resident worker
  bool wants_sample = false;  // kWait: the live memory reading is out of date
  MemoryPlan::Ids evict{};    // kWait: idle workers to release now
  AllocationId retire = 0;    // kWait: the model's worker, too small for this request
  Figures figures{};
};

class Assessor {
 public:
  struct Surroundings {
    const Ledger& ledger;
    const LearnedPeaks& learned;
    uint64_t ceiling = 0;
    const std::optional<LiveMemory>& live;
    bool live_stale = false;
    std::span<const Demand> claims;
    std::function<bool(std::string_view)> pinned;
  };

  explicit Assessor(Surroundings around)
      : around_(std::move(around)), plan_(around_.ledger, around_.ceiling, around_.live, around_.claims) {}
  Assessor(const Assessor&) = delete;
  Assessor& operator=(const Assessor&) = delete;

  // `barrier`: this waiter was passed over so often that it keeps what is free, if only busy workers are in its way.
  [[nodiscard]] Assessment Assess(const AdmitRequest& request, bool barrier) const;

  [[nodiscard]] const Surroundings& around() const { return around_; }
  [[nodiscard]] const MemoryPlan& plan() const { return plan_; }

  // The shapes that would do for `request`, best first; those whose cost exceeds u64 are left out.
  struct Candidate {
    Shape shape;
    Charge charge;
  };
  [[nodiscard]] std::vector<Candidate> Candidates(const AdmitRequest& request) const;

 private:
  [[nodiscard]] Assessment OnResident(const LedgerEntry& current) const;
  [[nodiscard]] Assessment OnNewWorker(const AdmitRequest& request, const LedgerEntry* outgrown, bool barrier) const;
  [[nodiscard]] Assessment Short(const AdmitRequest& request, const Candidate& smallest, const LedgerEntry* outgrown,
                                 bool barrier) const;
  [[nodiscard]] Assessment TooLarge(const AdmitRequest& request, const LedgerEntry* outgrown) const;
  [[nodiscard]] bool Serves(const LedgerEntry& entry, const AdmitRequest& request) const;
  [[nodiscard]] bool HasPredecessor(const std::string& model) const;

  Surroundings around_;
  MemoryPlan plan_;
};

// The allocation that a model's requests are routed to: not leaving. nullptr if none.
[[nodiscard]] const LedgerEntry* CurrentOf(const Ledger& ledger, std::string_view model);

// The refusal of a request that got `verdict`, with a message and the next command.
[[nodiscard]] Refusal Explain(Verdict verdict, const ModelFacts& facts, const Figures& figures);
[[nodiscard]] Refusal ExplainQueueFull(const ModelFacts& facts, uint32_t waiting, uint32_t limit, bool of_model);
[[nodiscard]] Refusal ExplainBlocked(Verdict verdict, const ModelFacts& facts, Duration retry_after,
                                     std::string_view detail);
// A request whose deadline came. `verdict` is what it waited for; kAllowed: its worker did not get ready in time.
[[nodiscard]] Refusal ExplainDeadline(Verdict verdict, bool for_sequence, const ModelFacts& facts,
                                      const Figures& figures, Duration waited);
[[nodiscard]] std::string FormatBytes(uint64_t bytes);

}  // namespace bulkhead::admission
