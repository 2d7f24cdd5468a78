#include "engine/runtime/continuous_batch_engine.h"

#include <fmt/format.h>

#include <utility>

#include "engine/runtime/engine_loop.h"
#include "kernels/dispatch.h"

namespace bulkhead::engine {
namespace {

absl::StatusOr<const kernels::KernelTable*> FindTier(const std::string& name) {
  if (name.empty()) return kernels::DefaultTier().table;
  for (const kernels::KernelTable* table : kernels::RunnableTiers(kernels::DetectCpuFeatures())) {
    if (name == table->name) return table;
  }
  return Error(Reason::kCpuUnsupported,
               fmt::format("kernel tier '{}' is not known or this processor cannot run it", name));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ContinuousBatchEngine>> ContinuousBatchEngine::Create(Options options) {
  if (options.model == nullptr || options.pool == nullptr || options.sink == nullptr || options.max_waiting == 0) {
    return Error(Reason::kInvalidRequest, "an engine needs a model, a compute pool, a sink and room for a waiter");
  }
  ASSIGN_OR_RETURN(const kernels::KernelTable* kernels, FindTier(options.kernel_tier));
  ASSIGN_OR_RETURN(auto runtime, PlanRuntime::Create(options.model->model().config(), options.shape));
  RETURN_IF_ERROR(options.pool->ReserveScratch(ScratchBytes(options.model->model().config())));
  auto loop = std::make_unique<Loop>(std::move(options), *kernels, std::move(runtime));
  loop->Start();
  return std::unique_ptr<ContinuousBatchEngine>(new ContinuousBatchEngine(std::move(loop)));
}

ContinuousBatchEngine::ContinuousBatchEngine(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}

ContinuousBatchEngine::~ContinuousBatchEngine() = default;

absl::Status ContinuousBatchEngine::Submit(GenerationRequest request) { return loop_->Submit(std::move(request)); }

void ContinuousBatchEngine::Cancel(uint64_t id) { loop_->Cancel(id); }

void ContinuousBatchEngine::Pause(uint64_t id) { loop_->SetPaused(id, true); }

void ContinuousBatchEngine::Unpause(uint64_t id) { loop_->SetPaused(id, false); }

void ContinuousBatchEngine::SetThreads(uint32_t threads) { loop_->SetThreads(threads); }

void ContinuousBatchEngine::Post(std::function<void()> closure) { loop_->Post(std::move(closure)); }

void ContinuousBatchEngine::Shutdown(Duration deadline) { loop_->Shutdown(deadline); }

EngineSnapshot ContinuousBatchEngine::Snapshot() const { return loop_->Snapshot(); }

EngineHealth ContinuousBatchEngine::Health() const { return loop_->Health(); }

uint64_t ContinuousBatchEngine::progress() const { return loop_->progress(); }

EnginePhase ContinuousBatchEngine::phase() const { return loop_->phase(); }

uint32_t ContinuousBatchEngine::context() const { return loop_->context(); }

uint64_t ContinuousBatchEngine::private_bytes() const { return loop_->private_bytes(); }

const std::string& ContinuousBatchEngine::kernel_tier() const { return loop_->kernel_tier(); }

std::string_view NameOf(EnginePhase phase) {
  switch (phase) {
    case EnginePhase::kIdle:
      return "idle";
    case EnginePhase::kPrefill:
      return "prefill";
    case EnginePhase::kDecode:
      return "decode";
  }
  return "idle";
}

}  // namespace bulkhead::engine
