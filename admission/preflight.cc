#include "admission/preflight.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace bulkhead::admission {
namespace {

class Sheet {
 public:
  explicit Sheet(std::vector<PreflightLine>* lines) : lines_(lines) {}
  void Add(std::string_view what, uint64_t bytes, std::string note = {}) { Put(what, Signed(bytes), std::move(note)); }
  void Subtract(std::string_view what, uint64_t bytes, std::string note = {}) {
    Put(what, -Signed(bytes), std::move(note));
  }

 private:
  static int64_t Signed(uint64_t bytes) {
    return static_cast<int64_t>(std::min<uint64_t>(bytes, std::numeric_limits<int64_t>::max()));
  }
  void Put(std::string_view what, int64_t bytes, std::string note) {
    lines_->push_back({std::string(what), bytes, std::move(note)});
  }
  std::vector<PreflightLine>* lines_;
};

void AddEstimate(Sheet& sheet, const ModelFacts& facts, Shape shape, const Charge& charge) {
  sheet.Add("weights", charge.weights, "mapped from the file, charged once however many workers map it");
  sheet.Add(
      "kv", charge.kv,
      fmt::format("{} sequences of {} tokens at {} bytes", shape.sequences, shape.context, facts.kv_bytes_per_token));
  if (charge.recurrent != 0) sheet.Add("recurrent state", charge.recurrent);
  sheet.Add("arena", charge.arena, "activations and logits of the largest forward");
  sheet.Add("overhead", charge.overhead, "tokenizer, stacks, allocator");
  if (charge.correction != 0) sheet.Add("correction", charge.correction, "measured in earlier runs of this shape");
  sheet.Add("= estimate", charge.Total());
}

void AddCeiling(Sheet& sheet, const Assessor& assessor) {
  const auto& around = assessor.around();
  const MemoryPlan standing(around.ledger, around.ceiling, around.live, {});
  const uint64_t charged = standing.Total({}, nullptr);
  const uint64_t with_claims = assessor.plan().Total({}, nullptr);
  sheet.Add("ceiling", around.ceiling, "by policy");
  sheet.Subtract("charged", charged, "workers, live or being torn down");
  if (with_claims != charged) sheet.Subtract("promised", with_claims - charged, "to requests that wait ahead");
  sheet.Add("= free under the ceiling", around.ceiling > with_claims ? around.ceiling - with_claims : 0);
}

void AddLive(Sheet& sheet, const Assessor& assessor) {
  const auto& live = assessor.around().live;
  if (!live.has_value()) {
    sheet.Add("available", 0, "live memory cannot be read");
    return;
  }
  const MemoryPlan& plan = assessor.plan();
  sheet.Add("available", live->available_bytes, "MemAvailable");
  sheet.Subtract("mapped weights", plan.MappedBytes({}, nullptr),
                 "of live workers; counted as available by the kernel");
  sheet.Subtract("not touched yet", plan.UntouchedBytes({}), "charged or promised, not yet resident");
  sheet.Subtract("reserve", LiveReserve(live->total_bytes), "max(10 %, 2 GiB) for everything else");
  sheet.Add("= live headroom", plan.LiveHeadroomNow());
}

void AddReleases(Sheet& sheet, const Assessor& assessor, const MemoryPlan::Ids& released) {
  MemoryPlan::Ids gone;
  for (const AllocationId id : released) {
    const LedgerEntry* entry = assessor.around().ledger.Find(id);
    if (entry == nullptr) continue;
    const uint64_t before = assessor.plan().Total(gone, nullptr);
    gone.push_back(id);
    sheet.Add("release of " + entry->facts->model, before - assessor.plan().Total(gone, nullptr),
              "idle; what ending it frees");
  }
}

}  // namespace

PreflightReport Report(const AdmitRequest& request, const Assessor& assessor, const Assessment& assessment) {
  const ModelFacts& facts = *request.facts;
  PreflightReport report;
  report.verdict = assessment.verdict;
  report.max_context = LargestContext(facts, assessor.around().ceiling);
  report.would_release = assessment.evict;
  if (assessment.retire != 0) report.would_release.push_back(assessment.retire);

  const auto candidates = assessor.Candidates(request);
  report.shape = assessment.shape;
  report.estimate = assessment.charge;
  if (const LedgerEntry* resident = assessor.around().ledger.Find(assessment.lease)) {
    report.estimate = resident->estimate;
  } else if (assessment.shape.sequences == 0 && !candidates.empty()) {
    report.shape = candidates.back().shape;
    report.estimate = candidates.back().charge;
  }
  Sheet sheet(&report.lines);
  if (report.shape.sequences != 0) AddEstimate(sheet, facts, report.shape, report.estimate);
  if (assessment.kind == Assessment::Kind::kLease) {
    sheet.Add("resident already", 0, "a request costs nothing more");
  }
  AddCeiling(sheet, assessor);
  AddLive(sheet, assessor);
  AddReleases(sheet, assessor, report.would_release);
  if (report.verdict != Verdict::kAllowed) report.refusal = Explain(report.verdict, facts, assessment.figures);
  return report;
}

}  // namespace bulkhead::admission
