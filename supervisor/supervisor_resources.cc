// Memory and CPUs, as they are measured and divided.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bulkhead/v1/worker.pb.h"
#include "supervisor/supervisor.h"

namespace bulkhead::supervisor {
namespace {

// Growth is to be charged within a second. A tick costs some microseconds for an idle worker.
constexpr Duration kMeasureBusy = std::chrono::milliseconds(500);
constexpr Duration kMeasureIdle = std::chrono::milliseconds(950);

bool MayGrow(AllocationState state) {
  return state == AllocationState::kStarting || state == AllocationState::kLoading || state == AllocationState::kBusy;
}

struct MapsJob {
  struct One {
    admission::AllocationId number;
    std::shared_ptr<ProcessMemory> memory;
    std::optional<MapReading> maps;
  };
  uv_work_t work = {};
  std::vector<One> all;
  std::function<void(const std::vector<One>&)> done;
};

void Queue(uv_loop_t* loop, std::unique_ptr<MapsJob> job) {
  MapsJob* raw = job.release();
  raw->work.data = raw;
  uv_queue_work(
      loop, &raw->work,
      [](uv_work_t* work) {
        for (MapsJob::One& one : static_cast<MapsJob*>(work->data)->all) one.maps = one.memory->Maps();
      },
      [](uv_work_t* work, int) {
        const std::unique_ptr<MapsJob> job(static_cast<MapsJob*>(work->data));
        job->done(job->all);
      });
}

}  // namespace

// --- Memory.

void Supervisor::SampleMemory() {
  if (ram_bytes_ == 0) ram_bytes_ = options_.memory->Machine().total;
  const std::optional<uint64_t> available = options_.memory->Available();
  std::optional<admission::LiveMemory> live;
  if (available.has_value()) live = admission::LiveMemory{ram_bytes_, *available};
  Coordinator().SetLiveMemory(live);
}

// While something waits, somebody else may give memory back without our knowing; while a worker lives, it may grow and
// the machine may run short.
void Supervisor::ArmSampling() {
  const bool waiting = coordinator_->budget().waiting > 0;
  if (!waiting && allocations_.empty()) return sample_timer_.Cancel();
  if (sample_timer_.armed()) return;
  const bool brisk = waiting || std::any_of(allocations_.begin(), allocations_.end(),
                                            [](const auto& entry) { return MayGrow(entry.second.process->state()); });
  sample_timer_.Arm(brisk ? kMeasureBusy : kMeasureIdle, [this] {
    MeasureAll();
    SampleMemory();
    ProcessActions();
  });
}

void Supervisor::MeasureAll() {
  for (auto& [number, held] : allocations_) held.process->Measure();
}

void Supervisor::MeasureMaps(std::function<void()> done) {
  auto job = std::make_unique<MapsJob>();
  for (const auto& [number, held] : allocations_) {
    if (auto memory = held.process->memory()) job->all.push_back({number, std::move(memory), std::nullopt});
  }
  job->done = [self = self_, done = std::move(done)](const std::vector<MapsJob::One>& all) {
    if (*self == nullptr) return;
    for (const MapsJob::One& one : all) {
      if (Held* held = (*self)->FindHeld(one.number)) held->maps = one.maps;
    }
    done();
  };
  Queue(loop_.uv(), std::move(job));
}

// --- CPUs.

// Divides the CPUs among busy workers; an idle one keeps what it had, since it uses none.
void Supervisor::Rebalance() {
  if (settings_.model.threads > 0) return;
  std::vector<uint64_t> busy;
  for (const auto& [number, held] : allocations_) {
    if (held.process->state() == AllocationState::kBusy) busy.push_back(number);
  }
  const std::vector<int> numbers = cpus_.numbers();
  for (const admission::CpuGrant& grant : admission::DivideCpus(numbers, cpus_.usable, busy)) {
    Held* held = FindHeld(grant.allocation);
    if (held == nullptr) continue;
    if (cpus_.placed()) Place(*held, grant.cpus);
    if (held->process->threads() == grant.threads) continue;
    held->process->set_threads(grant.threads);
    v1::DaemonFrame frame;
    frame.mutable_threads()->set_threads(grant.threads);
    held->process->Send(frame);
  }
}

void Supervisor::Place(Held& held, const std::vector<int>& cpus) {
  // It may run everywhere until it is told otherwise.
  const bool everywhere = cpus.size() == cpus_.cpus.size();
  if (held.cpus == cpus || (held.cpus.empty() && everywhere)) return;
  const absl::Status placed = held.process->SetCpus(cpus);
  if (placed.ok()) {
    held.cpus = cpus;
    cpu_problem_.clear();
  } else if (std::exchange(cpu_problem_, fmt::format("workers cannot be placed on CPUs: {}", Message(placed)))
                 .empty()) {
    Warn(cpu_problem_);
  }
}

std::string Supervisor::GrantOf(const Held& held, size_t busy) const {
  const Allocation& process = *held.process;
  const std::string threads = fmt::format("{} thread{}", process.threads(), process.threads() == 1 ? "" : "s");
  if (settings_.model.threads > 0) return fmt::format("{}: model.threads says so", threads);
  const std::string where = held.cpus.empty() ? "on any of them" : fmt::format("on CPU {}", FormatCpus(held.cpus));
  if (process.state() != AllocationState::kBusy) {
    return fmt::format("{} {}: idle, holds none until it is busy", threads, where);
  }
  if (busy == 1) return fmt::format("{} {}: nobody else is busy", threads, where);
  if (busy > cpus_.usable) {
    return fmt::format("{} {}: {} busy workers take turns on {} CPUs", threads, where, busy, cpus_.usable);
  }
  return fmt::format("{} {}: {} busy workers divide {} CPUs", threads, where, busy, cpus_.usable);
}

ResourceReport Supervisor::Resources() const {
  ResourceReport report;
  report.machine = Describe(cpus_);
  const auto busy = static_cast<size_t>(std::count_if(allocations_.begin(), allocations_.end(), [](const auto& entry) {
    return entry.second.process->state() == AllocationState::kBusy;
  }));
  for (const auto& [number, held] : allocations_) {
    if (!admission::IsReady(held.process->state())) continue;
    // The name of a passed file is nobody's business.
    const std::string& id = held.process->plan().id;
    const bool passed = held.process->plan().passed;
    report.workers.push_back(
        {passed ? "(descriptor)" + id.substr(id.rfind('#')) : id, GrantOf(held, busy), held.process->notes()});
    if (!held.maps.has_value()) continue;
    report.workers.back().notes.push_back(fmt::format(
        "huge pages: {} of {} MiB of private memory, {} of {} MiB of files", held.maps->huge_private >> 20,
        held.process->private_bytes() >> 20, held.maps->huge_files >> 20, held.process->file_bytes() >> 20));
  }
  return report;
}

}  // namespace bulkhead::supervisor
